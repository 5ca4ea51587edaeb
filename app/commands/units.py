"""Numbers as people say them."""


def duration(seconds: float) -> str:
    """Seconds in the two largest units that matter.

    >>> duration(7), duration(75), duration(4000), duration(200000)
    ('7 s', '1 min 15 s', '1 h 7 min', '2 d 7 h')
    """
    seconds = round(seconds)
    for unit, smaller, large, small in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if seconds >= unit:
            rest = seconds % unit // smaller
            return f"{seconds // unit} {large}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"
