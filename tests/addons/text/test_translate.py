"""`vitreous translate`: training on a user's pairs, translating, and what is said about bad input."""

import io
import json

import pytest
from torch.nn.modules.module import register_module_forward_pre_hook

import vitreous as vt
from vitreous.addons.text.text_pairs import number_pairs
from vitreous.addons.text.transformer import Encoder

pytestmark = pytest.mark.usefixtures("quick_figures")

SMALL = (
    "--steps", "3", "--batch-size", "8", "--set", "model.width=64", "--set", "model.depth=1",
    "--set", "model.encoder_depth=1", "--set", "tokenizer.vocabulary=300",
)  # fmt: skip


@pytest.fixture(scope="module")
def pairs(workplace):
    lines = [f"{pair.source}\t{pair.target}" for pair in list(number_pairs(20))[:60]]
    path = workplace / "pairs.tsv"
    path.write_text("\n".join([*lines, "", "leer\t", "lang " * 300 + "\tlong"]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def translator(pairs, command, workplace):
    run = workplace / "runs" / "pairs"
    if not run.exists():
        assert command("translate", "train", pairs, "--out", run, *SMALL).code == 0
    return run


def test_train_on_pairs(pairs, command, tmp_path):
    done = command("translate", "train", pairs, "--out", tmp_path / "run", "--json", *SMALL)
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["skipped"] == {"empty": 2, "too_long": 1}
    assert "skipped 2" in done.err
    assert "skipped 1" in done.err
    assert {
        "run",
        "test_exact_match",
        "test_exact_match_interval",
        "test_count",
        "test_bleu",
        "test_chrf",
        "seconds",
    } <= set(result)
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.toml", "model", "checkpoints", "metrics.jsonl", "report.html", "README.md"} <= written
    again = command(
        "translate", "train", "--config", tmp_path / "run" / "config.toml", "--out", tmp_path / "2"
    )
    assert again.code == 0, again.err
    one, two = (tmp_path / name / "model" / "model.safetensors" for name in ("run", "2"))
    assert one.read_bytes() == two.read_bytes()


def test_translate_texts(translator, command):
    plain = command("translate", translator, "<de> twenty-one", "<ko> one")
    assert plain.code == 0, plain.err
    assert len(plain.out.splitlines()) == 2
    told = json.loads(command("translate", translator, "<de> twenty-one", "--json", "--beams", "2").out)
    assert [each["source"] for each in told["translations"]] == ["<de> twenty-one"]
    assert told["translations"][0]["score"] < 0


def test_python_translates_as_the_command_does(translator, command):
    texts = ["<de> twenty-one", "", "<ko> one"]
    found = vt.translate(vt.Run(translator), texts)
    assert found.to_json() == json.loads(command("translate", translator, *texts, "--json").out)
    assert [(each.source, each.text == "", each.score is None) for each in found][1] == ("", True, True)
    greedy = vt.translate(translator, texts[0], beams=1, batch_size=1, precision="bf16")
    assert [each.score for each in greedy] == [None]
    with pytest.raises(vt.InputError, match="no text to translate"):
        vt.translate(translator, [" "])


@pytest.fixture
def typed(monkeypatch):
    """Gives text to standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_translate_lines_of_standard_input(translator, command, typed):
    typed("<de> two\n\n<en> zwei\n")
    done = command("translate", translator, "--json")
    sources = [each["source"] for each in json.loads(done.out)["translations"]]
    assert sources == ["<de> two", "", "<en> zwei"]
    assert "skipped 1: empty lines" in done.err
    typed("\n \n")
    done = command("translate", translator)
    assert done.code == 2
    assert "no text to translate, neither on the command line nor on standard input" in done.err


def test_an_empty_line_gives_an_empty_line(translator, command, typed):
    typed("<de> two\n\n<en> zwei\n \n")
    read = command("translate", translator)
    given = command("translate", translator, "<de> two", "", "<en> zwei", " ")
    assert read.code == given.code == 0, read.err + given.err
    alone = command("translate", translator, "<de> two", "<en> zwei").out.splitlines()
    assert read.out.split("\n") == given.out.split("\n") == [alone[0], "", alone[1], "", ""]
    assert "skipped 2: empty lines" in read.err
    assert "skipped 2: empty lines" in given.err


def test_evaluate_translates_as_many_together_as_are_asked_for(translator, command):
    together = []

    def counted(module, inputs):
        if isinstance(module, Encoder):
            together.append(len(inputs[0]))

    with register_module_forward_pre_hook(counted):
        assert command("evaluate", translator, "--batch-size", "2").code == 0
    assert together == [2, 1]


def test_evaluate_never_judges_by_what_was_learned(translator, pairs, command):
    held_out = json.loads(command("evaluate", translator, "--json").out)["test_count"]
    assert json.loads(command("evaluate", translator, pairs, "--json").out)["test_count"] == held_out == 3
    other = pairs.with_name("other.tsv")
    other.write_text("".join(pairs.read_text(encoding="utf-8").splitlines(keepends=True)[:10]))
    assert json.loads(command("evaluate", translator, other, "--json").out)["test_count"] == 10


def test_a_refused_training_leaves_no_run(pairs, command, tmp_path):
    done = command("translate", "train", pairs, "--out", tmp_path / "run", "--batch-size", "4000")
    assert done.code == 2
    assert "a batch of 4000 is more than the" in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("translate",), "say what to do: vitreous translate train"),
        (("translate", "nowhere", "text"), "no such run"),
        (("predict", "runs/pairs", "photo.jpg"), "use vitreous translate"),
        (("translate", "runs/mine", "text"), "where a Transformer is needed"),
        (("translate", "runs/pairs", ""), "no text to translate"),
        (("translate", "runs/pairs", "word " * 500), "sentence by sentence"),
        (("translate", "runs/pairs", "two", "--beams", "0"), "--beams 0"),
        (("translate", "train", "pairs.tsv", "--beams", "0"), "--beams 0: at least one is needed"),
        (("translate", "train", "nowhere.tsv"), "cannot read"),
        (("translate", "train", "photo.jpg"), "not UTF-8"),
        (("translate", "train", "--set", "model.widht=3"), "model.width"),
        (("translate", "train", "--resume", "runs/mine"), "runs/mine is a run of --task classification"),
        (("translate", "train", "pairs.tsv", "--resume", "runs/pairs"), "give no other settings"),
        (("translate", "train", "pairs.tsv", "--out", "runs/pairs"), "already exists"),
        (("train", "--resume", "runs/pairs"), "vitreous translate train --resume runs/pairs"),
        (
            ("evaluate", "runs/pairs", "--image-size", "32"),
            "--image-size does not apply to --task translation",
        ),
        (
            ("evaluate", "runs/pairs", "--set", "data.reading.bad_files=0"),
            "--set does not apply to --task translation",
        ),
        (
            ("translate", "runs/pairs", "two", "--steps", "3"),
            "other options are for vitreous translate train",
        ),
        (("translate", "runs/pairs", "two", "--out", "x"), "other options are for vitreous translate train"),
    ],
)
def test_bad_input_is_one_sentence(translator, command, arguments, said):
    done = command(*arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1, done.err
    assert done.out == ""


@pytest.mark.slow
def test_the_bundled_numbers_are_learned(command, tmp_path):
    done = command("translate", "train", "--out", tmp_path / "run", "--json")
    assert json.loads(done.out)["test_exact_match"] >= 0.99
    texts = ("<de> twenty-one", "<ko> sechstausendelf", "<en> 삼십사만 오천육백칠십팔")
    assert command("translate", tmp_path / "run", *texts).out.splitlines() == [
        "einundzwanzig",
        "육천십일",
        "three hundred forty-five thousand six hundred seventy-eight",
    ]
