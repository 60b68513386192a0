"""`nagphormer cache`: what lies in the folder for what can be had again."""

from nagphormer.cache import cache_folder, entries, remove
from nagphormer.commands.terminal import result
from nagphormer.files import format_size


def run(*, clear: bool = False, graphs: bool = False) -> None:
    """List what is there, or remove it.

    Args:
        clear: remove the tokens; runs make them anew where they need them.
        graphs: with --clear, remove the graphs, too; those that were downloaded can be again.
    """
    found = entries()
    gone = [entry for entry in found if clear and (graphs or entry.kind == "tokens")]
    remove(gone)
    listed = gone if clear else found
    size = sum(entry.num_bytes for entry in listed)
    facts = [
        {
            "kind": entry.kind,
            "graph": entry.graph,
            **entry.settings,
            "bytes": entry.num_bytes,
            "date": entry.written.isoformat(),
            "path": str(entry.path),
        }
        for entry in listed
    ]
    lines = [
        f"  {entry.kind:<6}  {entry.written}  {format_size(entry.num_bytes):>8}  {entry.graph}"
        + "".join(f", {name} {value}" for name, value in entry.settings.items())
        for entry in listed
    ]
    head = f"{cache_folder()}: {len(listed)} {'removed' if clear else 'held'}, {format_size(size)}"
    told = {"folder": str(cache_folder()), "removed" if clear else "entries": facts, "bytes": size}
    result(told, "\n".join([head, *lines]))
