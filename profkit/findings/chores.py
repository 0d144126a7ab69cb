"""What a line of the user's code does beside training, told by what it calls, and what to do about each."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.findings.trainers import setting
from profkit.findings.whole_run import DECOMPOSES, RECOPIES, SINKS, SLOWS
from profkit.model.documents.report import Bottleneck
from profkit.redact.later import later


class Chore(msgspec.Struct, frozen=True):
    """One kind of work beside training."""

    calls: re.Pattern[str]
    """What stands in a line that does it."""
    does: str
    """What the line does, after its name."""
    fix: str
    is_aside: bool = False
    """Whether it is no part of training wherever it runs: in a module's forward, in what makes a batch."""


_ALL: Final = "saves a whole object"
_OF_ONE: Final = r"_(?:norm|value)_\(\s*\[?(?:p|par|param|parameter|w|weight)\]?\s*,"
CHORES: Final = tuple(
    Chore(later(calls), does, fix)
    for calls, does, fix in (
        (
            r"\btorch\.save\(self,",
            _ALL,
            "save what changes alone: the state_dict of model, optimizer and scheduler, and the step; the whole object takes with it all that it holds, data sets as well; and save less often",
        ),
        (
            r"\btorch\.save\(|\bsave_(?:pretrained|checkpoint|file|state|model)\(",
            "saves a checkpoint",
            "save less often, or beside the training (torch.distributed.checkpoint.async_save, a thread), and only what has changed",
        ),
        (
            r"\bjson\.(?:dumps?|loads?)\(|\byaml\.|\btoml",
            "writes or reads JSON text",
            "leave tensors as they are: pass them in memory, or torch.save and safetensors for files; JSON is for a few numbers",
        ),
        (
            r"\b(?:pickle|dill|joblib|marshal)\.|\btorch\.load\(",
            "packs or unpacks objects",
            "pass objects in memory, or do this once before the loop",
        ),
        (
            r"\bdeepcopy\(|\bcopy\.copy\(|\.state_dict\(\)\.items\(\)|\.clone\(\) for ",
            "copies whole objects",
            "copy only what changes: of a model into tensors that were made once (torch._foreach_copy_), of an object of your own by a method that copies its few fields; and only when it is needed, as where a result has improved",
        ),
        (
            r"\.savefig\(|\bplt\.|\.imshow\(|\.add_(?:figure|image)|\bImage\.|\bImageDraw\b|\bPIL\.",
            "draws pictures",
            "draw every few hundred steps, or after the run from numbers that were kept",
        ),
        (
            r"(?<![a-z])(?:metric|acc|accuracy|auc|au?roc|auprc?|ap|map|f1|f_?beta|precision|recall|specificity|sensitivity|score|dice|iou|jaccard"
            r"|ndcg|mrr|kappa|mcc|confmat|ece|mae|r?mse|mape|r2|corr|corrcoef|pearson|spearman|bleu|rouge|[cw]er|perplexity|psnr|ssim|meter)s?"
            r"(?:[_\d]\w*)?(?:\[[^\]]*\])?\.compute\(\s*\)|\bself\.log(?:_dict)?\(.*\.compute\(\s*\)",
            "computes a metric of what it has kept so far",
            "call update() in each step and compute() once per epoch; or log what the metric is on the batch alone",
        ),
        (
            r"\bsklearn\b|\b\w*(?:f1|accuracy|precision|recall|auc)_score\(|\bconfusion_matrix\(|\bclassification_report\(|\broc_auc|\bmetrics?\.\w+\(",
            "computes metrics",
            "compute metrics every few hundred steps or on the validation set alone, with torch on whole batches",
        ),
        (
            r"\badd_(?:histogram|scalars?)\(|\b(?:wandb|mlflow|neptune)\.|\bwriter\.\w+\(|\blogg(?:er|ing)\.\w+\(|\bprint\("
            r"|(?i:\b_?log(?:ger)?)\.(?:debug|info|warn(?:ing)?|error|critical|exception|log)\("
            r"|\.(?:write|writelines|writerow|flush)\(|\bos\.fsync\(|\bopen\(",
            "writes a log or a file",
            "collect rows in a list and write them every few hundred steps, without flush() or fsync() for each",
        ),
        (
            r"\b(?:np|numpy)\.(?:histogram|percentile|quantile|median|linalg|corrcoef|cov|fft|unique|sort|argsort)",
            "computes numbers with NumPy",
            "compute them every few hundred steps, or with torch on the tensors as they are",
        ),
        (
            r"\b(?:np|numpy)\.(?:moveaxis|rollaxis|swapaxes|transpose|ascontiguousarray|asfortranarray)\(",
            "copies NumPy arrays into another layout",
            "keep the array as batches take it, laid out once before the loop: samples along the first axis and contiguous, so that data[index] copies whole rows and none are turned around",
        ),
        (
            r"\b(?:pd|pandas)\.|\.i?loc\[|\.(?:iterrows|itertuples|groupby|to_csv)\(",
            "works on a pandas table",
            "turn the table into tensors once before the loop, and index these",
        ),
        (
            r"\b(?:hashlib|zlib|gzip|lzma|bz2|base64)\b|\bhexdigest\(|\bsha\d+\(|\bmd5\(|\bcrc32\(",
            "hashes or compresses bytes",
            "do it every few hundred steps, or once at the end",
        ),
        (
            r"\bgc\.collect\(|\bempty_cache\(|\btracemalloc\b|\bsys\.getsizeof\(|\bpsutil\b|\.memory_info\(",
            "looks after memory",
            "leave it out: Python and torch give memory back by themselves; or do it once for each epoch",
        ),
        (
            rf"\bclip_grad{_OF_ONE}",
            "clips the gradient of one parameter after the other",
            "call it once, behind the loop, with all parameters; a norm is then that of all gradients together, so choose its limit anew",
        ),
        (r"\b(?:time\.)?sleep\(", "sleeps", "leave the pause out; wait for what it is meant for (an event, a queue)"),
        (
            r"\.acquire\(|\bwith\s+[\w.]*lock\b|\.join\(\s*\)|\.result\(|\b(?:event|cond)\w*\.wait\(",
            "waits for another thread or process",
            "hold the lock only for what it protects, and hand work over by a queue that is filled ahead of the step",
        ),
        (
            r"\b(?:requests|urllib|httpx|aiohttp|socket|boto3|redis|sqlite3)\b|\burlopen\(|\.(?:execute|commit|recv|sendall)\(",
            "talks to a server or a data base",
            "do it in a thread beside the training, many steps in one message",
        ),
        (
            r"\bsubprocess\.|\bos\.(?:system|popen)\(|\bPopen\(",
            "runs another program",
            "run it beside the training, and read what it says every few hundred steps",
        ),
        (
            r"\btokeni[sz]er\w*[.(]|\btokeni[sz]e\(|\bencode_batch\(",
            "tokenises text",
            "tokenise once before the training and store the numbers; or in the workers of a DataLoader (num_workers)",
        ),
        (
            r"\btorch\.(?:(?:as_)?tensor|(?:Float|Long)?Tensor)\(|\b(?:np|numpy)\.array\(",
            "builds tensors from Python objects",
            "make one tensor of the whole data set before the loop and index it; or build batches in the workers of a DataLoader",
        ),
        (
            r"\.tolist\(\)",
            "turns tensors into Python lists",
            "keep them tensors, and read numbers every few hundred steps",
        ),
        (
            r"\bnamed_(?:parameters|modules|buffers)\(|\.state_dict\(",
            "walks through the parameters",
            "make the list once before the loop; use torch._foreach_norm and its like, which take all tensors in one call",
        ),
        (
            r"\bchoice\(.*,\s*p=|\bchoices\(.*,\s*weights=",
            "draws by weights, all of which it adds up first",
            "where the weights change in each step, as priorities of a replay memory do, keep them in a sum tree, so that a draw and a change pass a few nodes only; else keep their running sums (np.cumsum), and search these (np.searchsorted)",
        ),
        (
            r"\bre\.\w+\(|\bsorted\(|\brandom\.(?:sample|shuffle|choices?)\(",
            "does work on Python objects",
            "prepare it once before the loop, or in the workers of a DataLoader",
        ),
    )
)
"""The first that fits counts: the surer and dearer ones stand first.

Chosen with the programs of rounds 1 and 2 of docs/accuracy.md at hand: their later scores are no proof of it.
"""
INTO_TEXT: Final = Chore(
    later(r"^Tensor\.__(?:format|repr|str)__\("),
    "turns tensors into text",
    'give the logger the tensors as arguments (log.debug("%s", x)): it makes text only of what it shows; or ask log.isEnabledFor(logging.DEBUG) first; what is shown, print every few hundred steps, as a few numbers',
    is_aside=True,
)
"""Told by what a line calls: an f-string does so also where nobody shows it."""
_MODEL_CALLS: Final = later(
    rf"\bbackward\(|\bmodel\(|\bnet\(|\.step\(|\bzero_grad\(|\bforward\(|\bclip_grad(?!{_OF_ONE})|\boptim\."
    r"|(?<![.\w])(?:evaluate|validate)\w*\("
)
"""What trains or evaluates, in a line that may do something else as well: a log of what it gives."""

_GIVEN: Final = later(
    r"(?:^|[=\s(,])(?!(?:list|tuple|len|int|float|print|tqdm)\()(?:(?!torch\.|np\.|numpy\.|F\.)[a-z_]\w*\.)*"
    r"(?!(?:append|appendleft|extend|add|insert|put|copy_)\()[a-z_]\w*\([^()=]*\b(?:torch\.(?:as_)?tensor|torch\.(?:Float|Long)?Tensor)\("
)
"""A tensor is made for what a name of the script's own is called with: that may be the model, which takes the time."""


def chore_of(text: str, call: str = "", way: str = "") -> Chore | None:
    """What a line does beside training, by its text, what it calls, or the way of looks at it; None where none tells."""
    if way == "text" or INTO_TEXT.calls.search(call):
        return INTO_TEXT
    if not text or _MODEL_CALLS.search(text) or _GIVEN.search(text):
        return None
    return next((one for one in CHORES if one.calls.search(text)), None)


def decomposes(text: str) -> bool:
    """Whether a line with that text decomposes a matrix by torch."""
    return _DECOMPOSES.search(text) is not None


def makes_square_bases(text: str) -> bool:
    """Whether it makes all singular vectors of both sides, which is torch.linalg.svd's default."""
    return _SQUARE.search(text) is not None


def joins(text: str, callee: str = "") -> bool:
    """Whether a line with that text, or what it calls, joins arrays, tensors or tables: what was kept is copied."""
    return callee in _JOINING or _JOINS.search(text) is not None


EVERY_METRIC: Final = "chores.every"
"""Of the evidence that a chore is not in each step: the recorded steps have none of it, or more than the run."""
_BEHIND: Final = (Supersedes("host.launch_bound", Way.BEHIND, 0.2),)
_LOOKALIKES: Final = (
    "what the job needs as often as this: its share is its price",
    "a machine whose disk or cores others use: the line waits for these",
)
_PROOF: Final = "Leave the line out for a while: the step becomes shorter by about the share shown."

CHORE: Final = FindingKind(
    id="host.chore",
    title="a line does something beside training",
    bottleneck=Bottleneck.OVERHEAD,
    is_of_run=True,
    supersedes=(
        *_BEHIND,
        *(Supersedes(one, Way.SAID_ONCE, 0.5) for one in ("host.line", "host.stall")),
        *(Supersedes(one, Way.BEHIND, 0.5) for one in ("kernel.unfused", "kernel.copies")),  # most programs have these
    ),
    meaning="A line of the script's own saves, writes, copies, converts or waits, while nothing trains. It is told by what stands in it; text of tensors by what it calls, inside a model as well. Its share is that of the run beside the recorded steps, whatever lies between two loops with it.",
    measured="Beside the recorded steps a thread looks at the line that runs, up to 50 times a second, after 500 looks up to 20. Each look stands for the time since the one before: a line that keeps Python's lock puts looks off. Of pure Python that lasts less than 5 ms they see little: Python hands its lock over no sooner. Only on a CPU: beside a GPU, a line may cost nothing. What loaders do is not counted, nor what a line calls that trains.",
    thresholds={
        "run": Threshold(0.05, "fires at {} of the run", "chosen: the severity medium"),
        "looks": Threshold(10, "and {} looks or more at it", "as rare steps have it", ""),
    },
    lookalikes=_LOOKALIKES,
    proof=_PROOF,
    fixes=("do it every few hundred steps", "do it beside the training: in a thread, or another process"),
)

HOST_LINE: Final = FindingKind(
    id="host.line",
    title="one line takes much of the time between operators",
    bottleneck=Bottleneck.OVERHEAD,
    supersedes=(*_BEHIND, Supersedes("host.stall", Way.SAID_ONCE, 0.8)),
    meaning="Of the time in which no operator runs, much lies at one line, or in one function, of the script's own that is no part of the model, the backward pass or the optimizer, or makes text of tensors.",
    measured="The time of the training thread between operators, by the lines that Python stacks name; where the text of a line says what it does beside training, with the operators that it calls. On a CPU only.",
    thresholds={
        "known": Threshold(0.05, "fires at {} of the window where its text says what it does", "chosen: medium"),
        "window": Threshold(
            0.12,
            "else at {} of the window",
            "chosen on programs that docs/accuracy.md shows: no line of the healthy ones has as much",
        ),
        "between": Threshold(0.3, "and {} of the time between operators", "chosen: it is the one to look at"),
    },
    lookalikes=_LOOKALIKES,
    proof=_PROOF,
    fixes=(
        "find out what it computes for; do it every few hundred steps, once before the loop, or beside the training (a thread, workers of a DataLoader)",
    ),
)

_JOINS: Final = later(
    r"\b(?:torch|np|numpy|pd|pandas|jnp)\.(?:cat|concat|concatenate|append|[vhd]stack|insert)\(|\b(?:\w+_)?(?:cat|concatenate|concat)\("
)
_JOINING: Final = frozenset({"concat", "concatenate", "append", "vstack", "hstack", "insert"})
"""Functions of libraries that make one longer array, tensor or table of several; `stack` does not: all it takes have one
shape, and what is kept has more rows than what is new. Those of lists are C code, no frame."""
_DECOMPOSES: Final = later(r"\btorch\.(?:linalg\.)?(?:svd|eigh?|qr|pinv|cholesky|inv|matrix_exp)\(")
_SQUARE: Final = later(r"\btorch\.linalg\.svd\((?:[^(),]|\([^()]*\))+\)")
"""With one argument."""
_FIXES: Final = {
    RECOPIES.id: "append to a Python list and join once after the loop; or keep running sums, where only these are read",
    SLOWS.id: "if it goes through all that was seen so far: keep running sums or a window of fixed length, and look up in a set or a dictionary, not in a list",
    SINKS.id: SINKS.fixes[0],
}
_DATA: Final = frozenset({"dataloader", "dataloaders", "dataset", "datasets"})
"""Words of functions that build data sets and their loaders; what iterates over one is told as a wait for it."""
_DECODES: Final = frozenset({"beam", "decode", "decoding", "greedy"})
"""Words of functions that make sequences one token after the other."""
_WRITES: Final = frozenset(
    {"writes or reads JSON text", "writes a log or a file", "packs or unpacks objects", "saves a checkpoint", _ALL}
)
_BUILDS: Final = later(r"=\s*(?:\w+\.)*[A-Z]\w*[a-z]\w*\(")
"""An object of a class is made and kept."""
_LESS: Final = "do it less often, or beside the training (a thread, another process)"
_APPEND: Final = (
    "write only what is new: append one line of it to the file (JSON lines, CSV), or write it all once at the end"
)


class Does(msgspec.Struct, frozen=True, kw_only=True):
    """What rare steps do at a line: how, its text, what it calls, the words of the functions that lead there."""

    way: str
    text: str
    callee: str
    functions: frozenset[str]
    is_evaluation: bool
    is_model: bool
    """Whether it is an evaluation, and most of it is in the model."""


def fix_of_rare(rare: Does, other: str, package: str) -> str:
    """What to do about rare steps, in the words of the library that runs the loop; `other`: for a job of its own."""
    if rare.way == "start":
        return "persistent_workers=True: workers live on from epoch to epoch"
    if rare.way == "wait":
        return "find the items that take long in the workers; more workers and a larger prefetch_factor give them time"
    if rare.way == "text":
        return INTO_TEXT.fix
    if rare.way == "load":
        return "make the rare slow items cheap: repair or leave them out, or prepare them once and store the result"
    said, fix = _fix_of_line(rare, other)
    said = setting(package, said)
    return f"{said}; else {fix}" if said else fix


def _fix_of_line(rare: Does, other: str) -> tuple[str, str]:
    """What a trainer's setting for it is called, and what to do without one."""
    chore = chore_of(rare.text)
    if rare.way == "save" and (chore is None or chore.does != _ALL):
        return "save", "save less often, or beside the training (torch.distributed.checkpoint.async_save, a thread)"
    if rare.functions & _DECODES and not other:
        return (
            "",
            f"if it decodes token by token, stop as soon as all sequences have ended (if done.all(): break); else {_LESS}",
        )
    if rare.is_model:
        return "evaluation", "evaluate less often, on fewer and larger batches, under torch.inference_mode()"
    if rare.functions & _DATA:
        return "built", "build the data set once, before the loop, and keep it: each time gives the same"
    if rare.is_evaluation and joins(rare.text, rare.callee):
        fix = "keep of each batch's outputs only what the metric reads (argmax, sums, counts), and join lists once"
        return "outputs", fix
    if other:
        return "", other
    if decomposes(rare.text):
        fixes = DECOMPOSES.fixes if "svd" in rare.text else DECOMPOSES.fixes[1:]
        thin = ("full_matrices=False",) if makes_square_bases(rare.text) else ()
        return "", "; ".join((*thin, *fixes))
    if chore is None and rare.is_evaluation:
        fix = "compute the metric on whole batches with torch, as running sums; evaluate less often or on fewer batches"
        return "evaluation", fix
    if chore is None and _BUILDS.search(rare.text):
        return "", f"if it builds the same each time, build it once before the loop and keep it; else {_LESS}"
    return "", chore.fix if chore else _LESS


def fix_of_growth(kind: FindingKind, text: str, *, has_hooks: bool) -> str:
    """What to do about a line that takes longer with each step; `has_hooks`: those of the model pile up."""
    if kind is SLOWS and has_hooks:
        return "remove each hook when it is done (handle.remove()): it runs in each step from then on"
    chore = chore_of(text)
    return _APPEND if kind is SLOWS and chore is not None and chore.does in _WRITES else _FIXES[kind.id]
