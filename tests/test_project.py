"""The files around the code agree with it."""

import re
from pathlib import Path

import yaml

import nagphormer

ROOT = Path(__file__).parent.parent


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_pre_commit_runs_the_ruff_of_the_tests():
    (pinned,) = re.findall(r"^ruff==(.+)$", text_of("constraints.txt"), re.MULTILINE)
    hooks = [hook for repo in yaml.safe_load(text_of(".pre-commit-config.yaml"))["repos"] for hook in repo["hooks"]]
    assert [hook["additional_dependencies"] for hook in hooks] == [[f"ruff=={pinned}"]] * 2


def test_the_release_of_the_citation_is_in_the_change_log():
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert f"## [{citation['version']}] - {citation['date-released']}" in text_of("CHANGELOG.md")


def test_the_newest_version_of_the_change_log_is_this_one_or_to_come():
    newest = re.findall(r"^## \[(.+?)\]", text_of("CHANGELOG.md"), re.MULTILINE)
    assert newest[0] == "Unreleased"
    assert newest[1] == re.match(r"\d+\.\d+\.\d+", nagphormer.__version__)[0] or ".dev" in nagphormer.__version__


def test_every_job_of_the_continuous_integration_runs_something():
    jobs = yaml.safe_load(text_of(".github/workflows/ci.yml"))["jobs"]
    assert all(any("run" in step for step in job["steps"]) for job in jobs.values())
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]


def test_the_forms_for_issues_are_forms():
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        content = yaml.safe_load(form.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= content.keys()
        assert all({"type", "attributes"} <= part.keys() for part in content["body"])
