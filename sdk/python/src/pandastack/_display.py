"""How values of code look in a notebook.

What a sandbox shows was made by code that nobody has reviewed, and a notebook
runs the scripts of what it displays with all the rights of its user. So HTML
goes into a frame that can reach nothing outside it, pictures are only ever
pictures, and forms that a notebook would run or render as HTML (JavaScript,
Markdown, other media types) are left to the caller.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Collection, Dict, List, Mapping, Optional

FORMS = {
    "text": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "javascript": "application/javascript",
    "json": "application/json",
}
_BYTES = ("png", "jpeg", "pdf")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class ShownOutput:
    """A value that a notebook displays. The fields are those of CodeOutput."""

    def formats(self) -> List[str]:
        """The names of the forms that the value has, such as text, html and png."""
        return [name for name in (*FORMS, "data", "chart", "extra") if getattr(self, name) is not None]

    def content(self, form: str) -> bytes:
        """The bytes of a form, ready for a file: pictures decoded, text as UTF-8."""
        if form not in FORMS or form == "json":
            raise ValueError(f"form is one of {', '.join(f for f in FORMS if f != 'json')}, not {form!r}")
        value = getattr(self, form)
        if value is None:
            raise ValueError(f"the value has no {form}; it has {', '.join(self.formats()) or 'no form at all'}")
        return base64.b64decode(value) if form in _BYTES else str(value).encode()

    def _repr_html_(self) -> Optional[str]:
        said = {name: getattr(self, name) for name in ("html", "svg", "png", "jpeg")}
        if said["html"]:
            return _frame(said["html"])
        if said["svg"]:
            return _picture("svg+xml", base64.b64encode(said["svg"].encode()).decode())
        for name in ("png", "jpeg"):
            if said[name] and _is_base64(said[name]):
                return _picture(name, said[name])
        return None

    def _repr_mimebundle_(
        self, include: Optional[Collection[str]] = None, exclude: Optional[Collection[str]] = None
    ) -> Dict[str, Any]:
        bundle: Dict[str, Any] = {"text/html": self._repr_html_()}
        for name in ("text", "png", "jpeg", "latex", "json"):
            bundle[FORMS[name]] = getattr(self, name)
        if bundle["text/plain"] is None:
            bundle["text/plain"] = f"<CodeOutput {', '.join(self.formats())}>"
        return chosen(bundle, include, exclude)


class ShownRun:
    """An execution that a notebook displays: what it wrote, its values, its error."""

    def _repr_html_(self) -> str:
        said: Mapping[str, Any] = self.__dict__
        parts = [_lines(said["stdout"]), _lines(said["stderr"], "color:#a33")]
        for output in said["results"]:
            parts.append(output._repr_html_() or _lines(output.text or ""))
        if said["error"] is not None:
            parts.append(_lines(said["error"].traceback or f"{said['error'].name}: {said['error'].value}", "color:#a33"))
        return "".join(parts)

    def _repr_mimebundle_(
        self, include: Optional[Collection[str]] = None, exclude: Optional[Collection[str]] = None
    ) -> Dict[str, Any]:
        said = self.__dict__
        error = f"{said['error'].name}: {said['error'].value}" if said["error"] is not None else ""
        plain = "".join((said["stdout"], said["stderr"], said["text"] or "", error))
        return chosen({"text/plain": plain, "text/html": self._repr_html_()}, include, exclude)


def chosen(
    bundle: Mapping[str, Any], include: Optional[Collection[str]], exclude: Optional[Collection[str]]
) -> Dict[str, Any]:
    """The forms that there are and that are wanted."""
    return {
        kind: value
        for kind, value in bundle.items()
        if value is not None and (not include or kind in include) and not (exclude and kind in exclude)
    }


def _frame(content: str) -> str:
    # The frame has an origin of its own, so that a script in it reaches neither
    # the notebook nor its cookies. It cannot say how high it wants to be.
    from html import escape

    height = min(40, max(4, 2 * len(re.findall(r"<tr|<p|<br|<li", content)) + 3)) if "<script" not in content else 40
    return (
        f'<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" srcdoc="{escape(content)}" '
        f'style="width:100%;height:{height}em;border:0;resize:vertical"></iframe>'
    )


def _picture(kind: str, data: str) -> str:
    return f'<img src="data:image/{kind};base64,{data}" style="max-width:100%">'


def _lines(text: str, style: str = "") -> str:
    from html import escape

    return f'<pre style="{style}">{escape(_COLOURS.sub("", text))}</pre>' if text else ""


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
