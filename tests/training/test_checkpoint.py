import json
import os
import pickle

import pytest
import torch

from nagphormer.files import checksum
from nagphormer.training import checkpoint
from nagphormer.training.checkpoint import Checkpoints


def tensors(epoch):
    return {"model.weight": torch.full((3, 2), float(epoch)), "optimizer.0.step": torch.tensor(float(epoch))}


@pytest.fixture
def saved(tmp_path):
    """A folder with the checkpoints of epochs 1 to 4."""
    checkpoints = Checkpoints(tmp_path / "state")
    for epoch in range(1, 5):
        checkpoints.save(epoch, tensors(epoch), {"update": 10 * epoch})
    return checkpoints


def flip(path, position=-1):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def test_a_checkpoint_comes_back_to_the_bit(tmp_path):
    state = {
        "float": torch.randn(4, 3),
        "half": torch.randn(5).to(torch.bfloat16),
        "count": torch.tensor(2**40),
        "turned": torch.randn(3, 4).T,  # not contiguous
        "weight": torch.randn(2, requires_grad=True),
    }
    Checkpoints(tmp_path).save(7, state, {"update": 3, "stopping": {"best_loss": float("inf")}})
    loaded, facts = Checkpoints(tmp_path).load()
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    assert (facts["epoch"], facts["update"], facts["stopping"]) == (7, 3, {"best_loss": float("inf")})


def test_only_the_last_two_are_kept(saved):
    names = sorted(path.name for path in saved.folder.iterdir())
    assert names == ["000003.json", "000003.safetensors", "000004.json", "000004.safetensors"]


def test_the_newest_is_used(saved):
    loaded, facts = saved.load()
    assert facts["epoch"] == 4
    assert torch.equal(loaded["model.weight"], tensors(4)["model.weight"])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda stem: flip(stem.with_suffix(".safetensors")), "checksum differs"),
        (lambda stem: flip(stem.with_suffix(".safetensors"), 3), "checksum differs"),
        (lambda stem: cut(stem.with_suffix(".safetensors")), "cut short"),
        (lambda stem: stem.with_suffix(".safetensors").unlink(), "missing"),
        (lambda stem: cut(stem.with_suffix(".json")), "damaged"),
        (lambda stem: stem.with_suffix(".json").write_text(""), "damaged"),
        (lambda stem: stem.with_suffix(".json").write_bytes(bytes(100)), "damaged"),
        (lambda stem: stem.with_suffix(".json").write_text('{"kind": "state", "format": 1}'), "lacks 'file'"),
    ],
    ids=["byte", "header", "cut", "missing", "json cut", "json empty", "json zeros", "json without facts"],
)
def test_a_damaged_newest_is_skipped_and_the_one_before_used(saved, damage, reason):
    damage(saved.folder / "000004")
    with pytest.warns(UserWarning, match=rf"the checkpoint 000004 cannot be used: .*{reason}.*; trying the one before"):
        loaded, facts = saved.load()
    assert facts["epoch"] == 3
    assert torch.equal(loaded["model.weight"], tensors(3)["model.weight"])


@pytest.mark.filterwarnings("ignore:the checkpoint 000004 cannot be used")
@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_flipped_byte_anywhere_never_changes_the_facts(saved, suffix):
    path = (saved.folder / "000004").with_suffix(suffix)
    newest = saved.load()[1]
    content = path.read_bytes()
    for position in range(0, len(content), 3):
        flip(path, position)
        facts = saved.load()[1]
        assert facts["epoch"] == 3 or facts == newest
        path.write_bytes(content)


def test_where_nothing_is_whole_there_is_no_checkpoint(saved, tmp_path):
    assert Checkpoints(tmp_path / "nowhere").load() is None
    for stem in ("000003", "000004"):
        flip(saved.folder / f"{stem}.safetensors")
    with pytest.warns(UserWarning, match="cannot be used") as warned:
        assert saved.load() is None
    assert len(warned) == 2


def test_tensors_without_their_facts_are_no_checkpoint(saved):
    (saved.folder / "000005.safetensors").write_bytes((saved.folder / "000004.safetensors").read_bytes())
    assert saved.load()[1]["epoch"] == 4


def test_a_damaged_one_is_replaced_when_training_comes_by_again(saved):
    flip(saved.folder / "000004.safetensors")
    saved.save(4, tensors(4), {})
    assert saved.load()[1]["epoch"] == 4


class Bomb:
    """A pickle that makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_planted_pickle_is_refused_and_never_run(saved, tmp_path):
    planted, mark = saved.folder / "000004.safetensors", tmp_path / "mark"
    for content in (pickle.dumps(Bomb(mark)), b""):
        planted.write_bytes(content)
        facts = json.loads(planted.with_suffix(".json").read_text())
        facts["file"] = {"bytes": len(content), "sha256": checksum(planted)}
        planted.with_suffix(".json").write_text(json.dumps(facts))
        with pytest.warns(UserWarning, match="the checkpoint 000004 cannot be used"):
            assert saved.load()[1]["epoch"] == 3
    torch.save(Bomb(mark), planted)
    facts["file"] = {"bytes": planted.stat().st_size, "sha256": checksum(planted)}
    planted.with_suffix(".json").write_text(json.dumps(facts))
    with pytest.warns(UserWarning, match="the checkpoint 000004 cannot be used"):
        assert saved.load()[1]["epoch"] == 3
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()  # so it would have gone off


def test_writing_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    write_json = checkpoint.write_json

    def slowly(path, content):
        clock[0] += 2
        write_json(path, content)

    monkeypatch.setattr(checkpoint, "write_json", slowly)
    monkeypatch.setattr(checkpoint, "SHARE", 0.1)
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.due
    checkpoints.save(1, tensors(1), {})
    for passed, due in ((0, False), (19, False), (21, True)):
        clock[0] = 1002 + passed
        assert checkpoints.due == due


def test_a_damaged_one_does_not_displace_a_good_one(saved):
    flip(saved.folder / "000004.safetensors")
    with pytest.warns(UserWarning, match="cannot be used"):
        assert saved.load()[1]["epoch"] == 3
    saved.save(3, tensors(3), {"update": 30})
    assert sorted(path.stem for path in saved.folder.glob("*.json")) == ["000003"]
