"""The allowed ranges of numbers from outside, one name per quantity. Config fields and flags are annotated with them.

Upper bounds are far above what a counter needs. They keep a wrong file or flag from taking all memory or all time.
"""

from typing import Annotated

from msgspec import Meta

Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]  # what numpy takes
Length = Annotated[int, Meta(ge=1, le=2**16)]  # tokens of a row, positions, number words
VocabularySize = Annotated[int, Meta(ge=1, le=2**17)]
Base = Annotated[int, Meta(ge=2, le=10_000)]  # of modular counting
Kinds = Annotated[int, Meta(ge=1, le=1000)]  # of tokens
Layers = Annotated[int, Meta(ge=1, le=256)]
Width = Annotated[int, Meta(ge=1, le=2**14)]  # of the residual stream, of a head
HiddenWidth = Annotated[int, Meta(ge=1, le=2**16)]
Heads = Annotated[int, Meta(ge=1, le=2**10)]
StateSize = Annotated[int, Meta(ge=1, le=2**12)]
Period = Annotated[float, Meta(ge=1, le=10**9)]  # positions until a wave begins again
Std = Annotated[float, Meta(ge=0, le=100)]
Dropout = Annotated[float, Meta(ge=0, lt=1)]
LearningRate = Annotated[float, Meta(ge=0, le=100)]
WeightDecay = Annotated[float, Meta(ge=0, le=1000)]
Step = Annotated[int, Meta(ge=0, le=10**9)]
Steps = Annotated[int, Meta(ge=1, le=10**9)]
RowCount = Annotated[int, Meta(ge=1, le=10**6)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
