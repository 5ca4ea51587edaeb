"""The paper's tables as data, our scores beside them, and the zoo that ships."""
