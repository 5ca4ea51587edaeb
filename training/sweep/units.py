"""Numbers as text: durations, numbers of operations, prices."""


def duration(seconds: float) -> str:
    """A number of seconds as text, in its two largest units.

    >>> duration(0.31), duration(7.2), duration(75.0), duration(4020.0), duration(2e5)
    ('0.3 s', '7 s', '1 min 15 s', '1 h 7 min', '2 d 7 h')
    """
    if 0 < seconds < 1:
        return f"{seconds:.1g} s"
    whole = round(seconds)
    for unit, smaller, large, small in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def operations(flops: float) -> str:
    """A number of floating-point operations as text, with a prefix.

    >>> operations(3.21e15), operations(450e9), operations(12.0), operations(2.5e22)
    ('3.2 PFLOP', '450 GFLOP', '12 FLOP', '25000 EFLOP')
    """
    prefixes = ["", "k", "M", "G", "T", "P", "E"]
    while flops >= 1000 and len(prefixes) > 1:
        flops, prefixes = flops / 1000, prefixes[1:]
    return f"{flops:.{int(flops < 10)}f} {prefixes[0]}FLOP"


def dollars(amount: float) -> str:
    """An amount of US dollars as text.

    >>> dollars(0.4), dollars(0.0002), dollars(1234.5)
    ('$0.40', '$0.00', '$1,234.50')
    """
    return f"${amount:,.2f}"
