"""The miniatures of public training scripts: they run, repeat to the last bit, and their flags mend what they say."""

import pytest

torch = pytest.importorskip("torch")

from workloads.miniatures import char_gpt, image_classifier, text_classifier  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {
    char_gpt: ("--eval_interval", "2", "--eval_iters", "1"),
    image_classifier: ("--images", "32"),  # two steps are an epoch: the third follows a validation
    text_classifier: ("--examples", "64"),
}
SCRIPTS = pytest.mark.parametrize("script", SMALL, ids=lambda script: script.__name__.rpartition(".")[2])


@pytest.fixture
def final_loss(capsys):
    """Runs three steps of a script and gives the loss it prints."""

    def run(script, *flags):
        assert script.main(["--steps", "3", *SMALL[script], *flags]) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        name, _, value = last.rpartition(" ")
        assert name == "final loss"
        return float(value)

    return run


@SCRIPTS
def test_a_miniature_repeats_to_the_last_bit_and_follows_its_seed(final_loss, script):
    first, second, other = final_loss(script), final_loss(script), final_loss(script, "--seed", "1")
    assert first == second
    assert other != first


@pytest.mark.parametrize("script", [char_gpt, text_classifier], ids=["char_gpt", "text_classifier"])
def test_the_fused_optimizer_trains_alike(final_loss, script):
    assert final_loss(script, "--optimizer", "fused") == pytest.approx(final_loss(script), rel=1e-4)


def test_workers_make_the_same_batches(final_loss):
    assert final_loss(image_classifier, "--workers", "1") == final_loss(image_classifier)


def test_texts_grouped_by_length_are_padded_less():
    examples = text_classifier.make_examples(64, 64, 0)
    batches = text_classifier.grouped(examples, 8, 0)
    assert sorted(index for batch in batches for index in batch) == list(range(64))
    mixed = [range(begin, begin + 8) for begin in range(0, 64, 8)]

    def padded(batches):
        return sum(text_classifier.collate([examples[i] for i in batch])["input_ids"].numel() for batch in batches)

    assert padded(batches) < 0.8 * padded(mixed)
