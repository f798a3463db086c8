"""I9: a recipe is used as it stands, or every mistake in it is named."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnish.config import LearnerConfig, RunConfig, config_digest, diff_configs, resolved_yaml
from burnish.config_load import ConfigError, Problem, load_config, newest_run
from burnish.config_reference import known_keys, known_sections, render_reference
from burnish.errors import UserError


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return tmp_path / "r.yaml"


def problems(recipe: Path, text: str, *overrides: str) -> tuple[Problem, ...]:
    recipe.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(recipe, overrides)
    return caught.value.problems


def test_defaults_and_values(recipe: Path) -> None:
    recipe.write_text("name: a\nlearner:\n  lr: 1e-5\n  betas: [0.8, 0.9]\ntasks:\n  bands: [easy]\n")
    config = load_config(recipe)
    assert (config.name, config.learner.lr, config.learner.betas) == ("a", 1e-5, (0.8, 0.9))
    assert config.tasks.bands == ("easy",)
    assert config.flow == RunConfig(name="x").flow


def test_overrides_win_and_are_read_as_yaml(recipe: Path) -> None:
    recipe.write_text("name: a\nlearner:\n  lr: 1\ntrain:\n  time_limit_s: 5\n")
    config = load_config(
        recipe,
        ["learner.lr=1e-5", "train.time_limit_s=null", "tasks.bands=[easy, hard]", "runs_dir=/tmp/a=b", "seed=7"],
    )
    assert config.learner.lr == 1e-5
    assert config.train.time_limit_s is None
    assert config.tasks.bands == ("easy", "hard")
    assert config.runs_dir == Path("/tmp/a=b")
    assert config.seed == 7


def test_one_problem_says_place_key_given_and_allowed(recipe: Path) -> None:
    (problem,) = problems(recipe, "name: a\nlearner:\n  lr: -1\n")
    assert problem.headline == f"{recipe}:3: learner.lr: given -1, allowed: a number > 0"


@pytest.mark.parametrize(
    ("line", "given", "allowed"),
    [
        ("seed: -1", "-1", "a whole number >= 0"),
        ("seed: 1.5", "1.5", "a whole number"),
        ("seed: true", "true", "a whole number"),
        ('seed: "1"', '"1"', "a whole number"),
        ("seed:", "null", "a whole number"),
        ("agent: 3", "3", "a section with keys among max_turns"),
        ("agent: {temperature: 0}", "0", "a number > 0 and <= 2"),
        ("model: {dtype: fp16}", '"fp16"', "one of bfloat16, float32"),
        ("tasks: {bands: [easy, hrad]}", '"hrad"', "each one of easy, medium, hard"),
        ("tasks: {bands: []}", "[]", "a list (not empty)"),
        ("tasks: {train: ''}", '""', "a text (not empty)"),
        ("learner: {betas: [0.9]}", "", "a list of 2"),
        ("learner: {betas: [0.9, 1.0]}", "1.0", "a list of 2, each a number >= 0 and < 1"),
        ("train: {time_limit_s: no}", '"no"', "a number > 0 or null"),
        ("runs_dir: 3", "3", "a path"),
    ],
)
def test_wrong_values(recipe: Path, line: str, given: str, allowed: str) -> None:
    (problem,) = problems(recipe, f"name: a\n{line}\n")
    assert problem.place == f"{recipe}:2"
    assert f"given {given}" in problem.cause or problem.cause.startswith("missing")
    assert allowed in problem.cause


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "-x", "a b", "a\\n", "x" * 101])
def test_a_name_is_a_safe_folder_name(recipe: Path, name: str) -> None:
    (problem,) = problems(recipe, f'name: "{name}"\n')
    assert problem.key == "name"


@pytest.mark.parametrize(
    ("text", "key", "fix"),
    [
        ("learner: {lrr: 1}", "learner.lrr", "did you mean learner.lr?"),
        ("learner: {learning_rate: 1}", "learner.learning_rate", "the section learner knows: lr, "),
        ("lr: 1", "lr", "did you mean learner.lr?"),
        ("learnr: {lr: 1}", "learnr", "did you mean learner?"),
        ("learner: {temperature: 1}", "learner.temperature", "did you mean agent.temperature or evaluate.temperature?"),
        ("flow: {num_step: 1}", "flow.num_step", "did you mean train.num_steps?"),
        ("learner.lr: 1", "learner.lr", "write `learner:` and below it, indented, `lr: ...`"),
        ("zzzzqq: 1", "zzzzqq", "the top level knows: name, seed, "),
    ],
)
def test_unknown_keys_name_the_closest(recipe: Path, text: str, key: str, fix: str) -> None:
    (problem,) = problems(recipe, f"name: a\n{text}\n")
    assert (problem.key, problem.cause) == (key, "unknown key")
    assert problem.fix is not None and fix in problem.fix


@pytest.mark.parametrize(
    ("override", "cause", "fix"),
    [
        ("learner.lrr=1", "unknown key", "did you mean learner.lr?"),
        ("learner=1", "a section, not a key", "e.g. learner.lr"),
        ("runs/quickstart-1", "not an override", "key=value"),
        ("learner.lr=-1", "given -1, allowed: a number > 0", None),
        ("learner.lr=.nan", "not a finite number", None),
        ("learner.lr=nan", 'given "nan", allowed: a number', None),
        ("learner.lr=[", "not valid YAML", None),
        ("name=@", "not valid YAML", None),
        ("=1", "unknown key", None),
    ],
)
def test_wrong_overrides(recipe: Path, override: str, cause: str, fix: str | None) -> None:
    text = "name: a\n" if not override.startswith("name") else "seed: 1\n"  # not missing beside broken
    (problem,) = problems(recipe, text, override)
    assert problem.place == f"override {override}"
    assert cause in problem.cause
    assert fix is None or fix in (problem.fix or "")


def test_an_override_twice_is_a_mistake(recipe: Path) -> None:
    (problem,) = problems(recipe, "name: a\n", "seed=1", "seed=2")
    assert (problem.place, problem.cause) == ("override seed=2", "overridden a second time")


def test_all_problems_are_named_at_once(recipe: Path) -> None:
    found = problems(recipe, "learner: {lr: -1, x: 1}\nflow: 3\n", "flow.max_lag=1", "seed=x")
    assert {p.key for p in found} == {"name", "learner.lr", "learner.x", "flow", "seed"}
    recipe.write_text("learner: {lr: -1}\n")
    with pytest.raises(UserError, match=r"2 problems(.|\n)*name: missing(.|\n)*learner.lr: given -1"):
        load_config(recipe)


def test_keys_that_disagree(recipe: Path) -> None:
    text = "name: a\nmodel: {max_context_tokens: 200}\nagent:\n  max_turns: 2\n  max_new_tokens: 100\n"
    (problem,) = problems(recipe, text)
    assert problem.place == f"{recipe}:5"
    assert "agent.max_turns * agent.max_new_tokens = 200" in problem.cause
    recipe.write_text(text.replace("max_new_tokens: 100", "max_new_tokens: 99"))
    assert load_config(recipe).agent.max_new_tokens == 99


@pytest.mark.parametrize(("text", "cause"), [("", "empty"), ("- a\n", "not a mapping"), ("3\n", "not a mapping but 3")])
def test_a_recipe_is_a_mapping(recipe: Path, text: str, cause: str) -> None:
    recipe.write_text(text)
    with pytest.raises(UserError, match=cause):
        load_config(recipe)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text("name: a\n")
    with pytest.raises(UserError, match=r"No such file(.|\n)*did you mean .*/quickstart.yaml"):
        load_config(tmp_path / "quikstart.yml")
    with pytest.raises(UserError, match="Is a directory"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(UserError, match="utf-8"):
        load_config(tmp_path / "latin.yaml")
    with pytest.raises(UserError, match="larger than"):
        load_config(Path("/dev/zero"))


def test_a_byte_order_mark_is_no_character(recipe: Path) -> None:
    recipe.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert load_config(recipe).name == "a"


def test_the_resolved_copy_reads_back_equal(recipe: Path) -> None:
    config = RunConfig(name="1e5", runs_dir=Path("no"), learner=LearnerConfig(lr=1e-5))
    recipe.write_text(resolved_yaml(config))
    assert load_config(recipe) == config


def test_digest_and_difference_agree() -> None:
    one = RunConfig(name="a")
    moved = RunConfig(name="a", runs_dir=Path("/elsewhere"))
    other = RunConfig(name="a", seed=3, learner=LearnerConfig(lr=1e-5))
    assert config_digest(one) == config_digest(moved) and diff_configs(one, moved) == []
    assert config_digest(one) != config_digest(other)
    assert diff_configs(one, other) == ["seed: 0 -> 3", "learner.lr: 2e-05 -> 1e-05"]


def test_the_newest_run_of_a_recipe(tmp_path: Path) -> None:
    config = RunConfig(name="a", runs_dir=tmp_path)
    with pytest.raises(UserError, match="no run of 'a' to continue"):
        newest_run(config)
    for age, (folder, name) in enumerate([("a-2", "a"), ("a-1", "a"), ("a-b-1", "a-b")]):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.yaml").write_text(f"name: {name}\n")
        path = tmp_path / folder / "config.yaml"
        os.utime(path, (1000 + age, 1000 + age))
    (tmp_path / "a-9").mkdir()  # no config: never begun
    assert newest_run(config) == tmp_path / "a-1"


def test_the_reference_knows_every_key() -> None:
    leaves = {
        f"{n}.{k}" if n else k for n, s in known_sections().items() for k in (i.key.split(".")[-1] for i in s.keys)
    }
    assert leaves == set(known_keys())
    assert {"name", "learner.lr", "train.num_steps"} <= leaves
    assert known_keys()["name"].default is None
    assert all(f"| `{key}` |" in render_reference() for key in leaves)


KEYS = st.sampled_from([*known_keys(), *known_sections(), "learner.lrr", "x", "a.b.c", "learner.lr.x", "", "."])
VALUES = st.text() | st.sampled_from(
    ["1", "-1", "1e-5", ".nan", "1e999", "[", "{a: 1}", "[1, 2]", "null", "true", "*a", "&a 1", "!!int 3", "9" * 5000]
)
LINES = st.builds(lambda indent, key, value: f"{indent}{key}: {value}\n", st.sampled_from(["", "  "]), KEYS, VALUES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(LINES).map("".join) | st.text(),
    overrides=st.lists(st.builds(lambda key, value: f"{key}={value}", KEYS, VALUES) | st.text(), max_size=3),
)
def test_no_input_raises_anything_but_a_users_mistake(recipe: Path, text: str, overrides: list[str]) -> None:
    recipe.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        config = load_config(recipe, overrides)
    except UserError as error:
        assert str(error)
    else:
        assert isinstance(config, RunConfig)
