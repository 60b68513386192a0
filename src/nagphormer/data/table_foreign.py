"""The beginning of a text file, unpacked; files that hold something else are refused, with what to do about them."""

from __future__ import annotations

import codecs
import re

from nagphormer.errors import UserError

BEGINNING = 1 << 20
"""How many bytes of a file are looked at."""

_NETWORKX = "no table: read it with NetworkX, and give from_networkx the graph"
_BY_ENDING = {
    (".json",): "JSON: name it .jsonl, with one object a line",
    (".xlsx", ".xls", ".ods"): "a worksheet: give the frame that pandas.read_excel makes of it",
    (".h5", ".hdf5", ".pkl", ".pickle"): "no text: give the frame that pandas makes of it",
    (".graphml", ".gexf", ".gml", ".adjlist"): _NETWORKX,
    (".npz",): "no table but arrays: give it to load_graph",
}
_BY_CONTENT = {
    r"%%MatrixMarket": "a matrix: read it with from_scipy(scipy.io.mmread({file!r}))",
    r'[\[{]\s*["\[{}\]]': "JSON: name it .jsonl, with one object a line",
    r"<\?xml|<!|<(graphml|gexf|html)\b|\*[Vv]ertices": _NETWORKX,
}
_PACKED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_UNPACKED = {".gz": "gzip", ".zst": "zstd"}


def unpacked_name(file: str) -> str:
    """A file's name in lower case, without the ending that says how it is packed."""
    return re.sub(r"\.(gz|zst)$", "", file.lower())


def refuse_foreign(file: str) -> None:
    """Refuse a file whose ending says that it is no text."""
    what = next((what for endings, what in _BY_ENDING.items() if unpacked_name(file).endswith(endings)), None)
    if what is not None:
        raise UserError(f"{file} is {what}")


def refuse_content(file: str, text: str) -> None:
    """Refuse text that is no table."""
    for pattern, what in _BY_CONTENT.items():
        if re.match(pattern, text.lstrip()):
            raise UserError(f"{file} is {what.format(file=file)}")


def read_beginning(file: str) -> str:
    """The first lines of a text file; refuses what is packed otherwise than by .gz and .zst, and what is no text."""
    import pyarrow as pa

    packed = next((kind for ending, kind in _UNPACKED.items() if file.lower().endswith(ending)), None)
    try:
        with pa.input_stream(file, compression=packed) as stream:
            content = stream.read(BEGINNING)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error}") from error
    by = next((name for mark, name in _PACKED.items() if content.startswith(mark)), None)
    if by is not None:
        raise UserError(f"{file} is packed by {by}, and only files that end in .gz or .zst are unpacked: unpack it")
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content)  # its last letter may be cut
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file} is not utf-8 text: {error.reason} at byte {error.start:,}; save it as UTF-8"
        ) from error
    if "\0" in text:
        raise UserError(f"{file} is no text: it holds bytes of zero")
    return text
