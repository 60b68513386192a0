"""The classes of nodes: their names, their one order, and the labels of a graph in terms of those a model knows.

Names that are all numbers are in the order of the numbers, others in that of text, whatever reader they come through.

Shapes: N nodes, n nodes asked for, C classes
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.tensors import as_array, is_missing
from nagphormer.errors import UserError

if TYPE_CHECKING:
    from nagphormer.data.graph import Graph

_WHOLE_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0*)?")  # 3 and 3.0, but not 03: that is a name
TRUTHS = ("False", "True")
"""What truth values are called, by every reader."""
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?")


def in_order(names: Iterable[str]) -> list[str]:
    """Class names in their order.

    >>> in_order(["10", "9", "2"]), in_order(["b", "10", "9"])
    (['2', '9', '10'], ['10', '9', 'b'])
    """
    distinct = sorted(set(names))
    return sorted(distinct, key=Decimal) if all(map(_NUMBER.fullmatch, distinct)) else distinct


def in_one_spelling(names: Iterable[str]) -> dict[str, str]:
    """Every name as it is written here: `False` and `True` where all are truth values, however a file spells them.

    >>> in_one_spelling(["true", "FALSE"]), in_one_spelling(["true", "maybe"])
    ({'true': 'True', 'FALSE': 'False'}, {'true': 'true', 'maybe': 'maybe'})
    """
    given = list(names)
    truths = {name.lower() for name in given} <= {"false", "true"}
    return {name: name.capitalize() if truths else name for name in given}


def read_labels(given: Any, class_names: Iterable[str] | None = None) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Labels as people have them: names of the classes, where they are no numbers, and labels, (N,) or (N, C).

    Numbers are classes, text is names, truth values are the names `False` and `True`, and lists are several labels a
    node. Unknown are -1, the empty text, None, NaN, pandas' NA and what is masked. A matrix of one column is a column.

    Args:
        given: the labels.
        class_names: names for the numbers, or the order of the names.
    """
    wanted = None if class_names is None else tuple(map(str, class_names))
    found, labels = _read(given)
    if wanted is None or found is None or (found == TRUTHS and not set(TRUTHS) <= set(wanted)):
        return wanted or found, labels
    missing = [name for name in found if name not in wanted]
    if missing:
        raise UserError(f"label {missing[0]!r} is none of the class_names: {', '.join(map(repr, wanted[:10]))}")
    place = np.array([wanted.index(name) for name in found], np.int64)
    if labels.ndim == 1:
        return wanted, np.append(place, -1)[labels]  # -1 is the last
    ordered = np.zeros((len(labels), len(wanted)), labels.dtype)
    ordered[:, place] = labels
    return wanted, ordered


def _read(given: Any) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """The same, with the names that are found in the labels."""
    if isinstance(given, np.ma.MaskedArray):
        given = np.where(np.ma.getmaskarray(given), np.array(None), np.asarray(given, object))
    if isinstance(given, list | tuple) and any(isinstance(each, list | tuple | set) for each in given):
        given = _unless_numbers(given)
    values = as_array(given.toarray() if sp.issparse(given) else given, "labels")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]  # (N, 1) -> (N,)
    kind = values.dtype.kind
    if values.ndim not in (1, 2) or (values.ndim == 2 and kind not in "biuf"):
        raise UserError(
            f"labels must be one for every node, or a matrix of 0 and 1 for several, not {type(given).__name__} of "
            f"shape {values.shape} and type {values.dtype}"
        )
    if kind == "O":
        return _read_objects(values)
    if kind in "SU":
        return name_classes(values)
    if kind == "b" and values.ndim == 1:
        return TRUTHS, values.astype(np.int64)
    values = _whole(values) if kind == "f" else values
    if values.ndim == 2 and values.shape[1] > 1 and (np.count_nonzero(values, axis=1) == 1).all():
        warnings.warn(
            f"each node has exactly one of {values.shape[1]} labels: where it can have no other, give labels.argmax(1)",
            stacklevel=5,
        )
    return None, values


def _unless_numbers(rows: list[Any] | tuple[Any, ...]) -> Any:
    """Rows of numbers as they are, as many in each; lists of labels as objects, one a node."""
    lengths = {len(each) if isinstance(each, list | tuple | set) else -1 for each in rows}
    if len(lengths) == 1 and not any(isinstance(label, str) for each in rows for label in each):
        return rows
    found = np.empty(len(rows), object)
    for node, each in enumerate(rows):
        found[node] = each
    return found


def _read_objects(values: np.ndarray) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Labels of any type, by what those are that are known."""
    known = np.array([not is_missing(value) for value in values], bool)
    present = values[known].tolist()
    if present and all(isinstance(value, bool | np.bool_) for value in present):
        return TRUTHS, np.where(known, values, -1).astype(np.int64)
    if all(isinstance(value, Real) for value in present):
        return None, _whole(np.where(known, values, np.nan).astype(np.float64))
    if all(isinstance(value, list | tuple | set | frozenset) for value in present):
        return _several([list(value) if there else [] for value, there in zip(values, known, strict=True)])
    wrong = next((value for value in present if not isinstance(value, str | bytes | Real | np.bool_)), None)
    if wrong is not None:
        raise UserError(f"label {wrong!r} is neither a number nor text; several labels of a node are a list")
    return name_classes(values)


def _whole(values: np.ndarray) -> np.ndarray:
    """Labels that came as fractions, since some are unknown: NaN becomes -1."""
    unknown = np.isnan(values)
    if values.ndim == 2 and unknown.any():
        node = int(np.argwhere(unknown)[0, 0])
        raise UserError(
            f"node {node:,} misses some of its {values.shape[1]} labels "
            f"({int(unknown.sum()):,} are NaN in all): multi-label graphs need 0 or 1 for every class"
        )
    return np.where(unknown, -1, values)


def _several(lists: list[list[Any]]) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Lists of labels as a matrix of 0 and 1, (N, C)."""
    found = [label for each in lists for label in each]
    numbers = all(isinstance(label, int | np.integer) and not isinstance(label, bool) and label >= 0 for label in found)
    spelled = {str(label): str(label) for label in found} if numbers else in_one_spelling(map(str, found))
    names = list(map(str, range(max(found, default=-1) + 1))) if numbers else in_order(spelled.values())
    place = {name: number for number, name in enumerate(names)}
    labels = np.zeros((len(lists), len(names)), np.int64)
    for node, each in enumerate(lists):
        labels[node, [place[spelled[str(label)]] for label in each]] = 1
        if labels[node].sum() < len(each):
            raise UserError(f"node {node:,} has a label twice in {each!r}")
    return None if numbers else tuple(names), labels


def name_classes(values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Class names and the label of every value; what is missing, -1 and the empty string mean unknown."""
    try:
        values = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
    except UnicodeDecodeError as error:
        raise UserError(f"labels are bytes that are no UTF-8 ({error}): decode them first") from error
    known = np.array([not is_missing(value) and str(value) not in ("", "-1") for value in values], bool)
    found, label = np.unique(values[known].astype(str), return_inverse=True)
    spelled = in_one_spelling(map(str, found))
    names = in_order(spelled.values())
    place = {name: number for number, name in enumerate(names)}
    labels = np.full(len(values), -1)
    labels[known] = np.array([place[name] for name in spelled.values()], np.int64)[label]
    return tuple(names), labels


def number_classes(
    texts: list[str], fractions: bool, known: tuple[str, ...] = ()
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The class of every label text (-1 for unknown), and the names of the classes.

    Args:
        texts: what stands in a column of labels, each once.
        fractions: whether the column holds numbers that need not be whole.
        known: classes that keep their places, before all others; a text is one of them if it is spelled as it is, or
            as its number or truth value is.
    """
    places = set(known)
    numbers = fractions or (known and all(map(_WHOLE_NUMBER.fullmatch, known)))
    texts = [text for text in texts if not (numbers and text.lower() in ("nan", "-nan"))]
    whole = {text: str(int(match[1])) for text in texts if (match := _WHOLE_NUMBER.fullmatch(text))}  # 3.0 is class 3
    names = dict(whole)
    if len(whole) < len(texts):
        wrong = next((text for text in texts if fractions and text not in places and _is_fraction(text)), None)
        if wrong is not None:
            raise UserError(f"label {wrong} is a fraction: labels are whole numbers or text, -1 or empty for unknown")
        unknown = {text for text in texts if whole.get(text) == "-1"}
        names = in_one_spelling(text for text in texts if text not in unknown) | dict.fromkeys(unknown, "-1")
    elif (lowest := min(map(int, whole.values()), default=0)) < -1:
        raise UserError(f"label {lowest} is negative: labels are 0 … C-1, or -1 for unknown")
    truths = places <= {"False", "True"}
    for text in texts:
        spellings = (text, whole.get(text, text.capitalize() if truths else text))
        names[text] = next((name for name in spellings if name in places), names[text])
    ordered = [*known, *(name for name in in_order(names.values()) if name != "-1" and name not in places)]
    place = {name: number for number, name in enumerate(ordered)} | {"-1": -1}
    return {text: place[name] for text, name in names.items()}, tuple(ordered)


def _is_fraction(text: str) -> bool:
    try:
        return float(text) % 1 != 0
    except ValueError:
        return False


@dataclass(frozen=True)
class Classes:
    """The classes a model knows, in the order of its outputs."""

    num_classes: int
    names: tuple[str, ...] | None
    multi_label: bool

    @classmethod
    def of(cls, graph: Graph) -> Classes:
        """The classes of a graph's labels."""
        if graph.labels is None:
            raise UserError("the graph has no labels: give labels when building it")
        return cls(graph.num_classes, graph.class_names, graph.labels.ndim == 2)

    @property
    def values(self) -> np.ndarray:
        """Names where there are any, else 0 … C-1."""
        return np.arange(self.num_classes) if self.names is None else np.array(self.names)

    def targets(self, graph: Graph, nodes: np.ndarray) -> np.ndarray:
        """Labels of some nodes in the order of these classes; refuses unknown and unheard-of ones."""
        if graph.labels is None:
            raise UserError("the graph has no labels to compare with")
        labels = graph.labels[nodes]
        if (labels.ndim == 2) != self.multi_label:
            kinds = ("one label per node", "several labels per node")
            raise UserError(
                f"the model was trained on {kinds[self.multi_label]}, but this graph has {kinds[labels.ndim - 1]}"
            )
        if self.multi_label:
            return labels[:, self._columns(graph)]
        if (labels < 0).any():
            raise UserError(f"{(labels < 0).sum():,} of the nodes have no label: leave them out of the split")
        names, known = graph.class_names, np.arange(graph.num_classes)
        mine, theirs = self._comparable(graph)
        if mine is not None and theirs is not None:
            place = {name: number for number, name in enumerate(in_one_spelling(mine).values())}
            known = np.array([place.get(name, -1) for name in in_one_spelling(theirs).values()])
        known = np.where(known < self.num_classes, known, -1)
        mapped = known[labels]
        if (mapped < 0).any():
            label = labels[mapped < 0][0]
            raise UserError(
                f"{(mapped < 0).sum():,} nodes have class {name_of(names, label)!r}, which the model has never seen: "
                f"it knows {', '.join(map(str, self.values[:20]))}"
            )
        return mapped

    def _comparable(self, graph: Graph) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Names of the model's and the graph's classes; numbers name those of one side that has none, if all are."""
        mine, theirs = self.names, graph.class_names
        named = mine if theirs is None else theirs if mine is None else ()
        if named and all(map(_WHOLE_NUMBER.fullmatch, named)):
            mine = mine or tuple(map(str, range(self.num_classes)))
            theirs = theirs or tuple(map(str, range(graph.num_classes)))
        return mine, theirs

    def _columns(self, graph: Graph) -> np.ndarray:
        """Where each label of a multi-label model stands in a graph's labels; by name where both have names."""
        if graph.num_classes != self.num_classes:
            raise UserError(f"the model knows {self.num_classes} labels, but the graph has {graph.num_classes}")
        mine, theirs = self._comparable(graph)
        if mine is None or theirs is None:
            return np.arange(self.num_classes)
        missing = set(mine) - set(theirs)
        if missing:
            raise UserError(f"the model knows label {min(missing)!r}, which the graph has not")
        return np.array([theirs.index(name) for name in mine])


def name_of(names: tuple[str, ...] | None, label: int) -> str:
    """What a class is called."""
    return str(label) if names is None else names[label]


def label_names(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Labels of some nodes as a model gives its decisions: names where there are any, the empty one for unknown.

    Without names they are numbers, -1 for unknown, (n,); of several labels a node 0 and 1, (n, C).
    """
    if graph.labels is None:
        raise UserError("the graph has no labels: give labels when building it")
    labels = np.asarray(graph.labels)[nodes]
    if graph.class_names is None or labels.ndim == 2:
        return labels
    return np.array([*graph.class_names, ""])[labels]  # -1 is the last
