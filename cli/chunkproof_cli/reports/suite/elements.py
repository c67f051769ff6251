"""HTML elements from values: every text becomes text, whatever is in it."""

from html import escape

# What a parser would replace or misread, escaped or not.
_IMPOSSIBLE = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "�")
_VOID = {"meta", "input", "br"}


class Html(str):
    """What is HTML already, made here; any other text is escaped when it is put into an element."""

    __slots__ = ()


def element(tag: str, /, *children: object, **attributes: object) -> Html:
    """One element. An attribute that is None or False is left out; `class_` and `data_x` are `class` and `data-x`."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    opened = f"<{tag}{given}>"
    return Html(opened if tag in _VOID else f"{opened}{joined(*children)}</{tag}>")


def joined(*children: object) -> Html:
    """The children one after another; None is nothing."""
    return Html("".join(_content(child) for child in children if child is not None))


def _content(child: object) -> str:
    return str(child) if isinstance(child, Html) else escape(str(child).translate(_IMPOSSIBLE))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_content(value)}"'
