"""Findings known by what stands in the trace: a pause, a compilation, work that a setting would spare."""

from __future__ import annotations

from math import inf
from typing import Final

from profkit.findings.kind import TO_TRY, FindingKind, Supersedes, Threshold, Way
from profkit.findings.whole_run import FLUSH
from profkit.model.documents.report import Bottleneck

_WORTH: Final = Threshold(0.02, "fires at {} of the window", "chosen: the least severity; less is noise between runs")
WORTH_WORK: Final = Threshold(0.05, _WORTH.says, "chosen: the severity medium")
MOSTLY: Final = 0.5
"""Chosen: what is half of the late launches names them."""
NAMES: Final = 0.1
"""Chosen: what few programs do, and costs so much of the host's time, is changed first: the rest has no one remedy."""
# the host launches nothing meanwhile: the same time stands under late launches, and as one of few stalls
_IS_THE_HOSTS: Final = (
    Supersedes("host.launch_bound", Way.BEHIND, MOSTLY),
    Supersedes("host.stall", Way.SAID_ONCE, MOSTLY),
)

GC: Final = FindingKind(
    id="host.gc",
    tries=("no_gc",),
    title="Python's garbage collector stops the step",
    bottleneck=Bottleneck.OVERHEAD,
    is_pause=True,
    late_phase="host",
    late_word="gc",
    supersedes=_IS_THE_HOSTS,
    meaning="Python looks through all objects that may hold each other, every so many allocations, and the thread that allocated waits. The more objects live in the process (a dataset in memory, many modules), the longer a full collection takes. Ranks pause at different times, and all of them wait for each.",
    measured="Ranges named for the collector, on the threads of the step: profkit capture records each collection (gc.callbacks). On a GPU, what it would idle less without them counts, by a replay of the launches; on a CPU, all of their time.",
    thresholds={"window": _WORTH},
    lookalikes=("a collection that the script asks for (gc.collect()), on purpose, between steps",),
    proof="Call gc.disable() before the loop, and leave out calls of gc.collect(): the pauses are gone and the step becomes shorter by about the time shown.",
    fixes=(
        "gc.freeze() after set-up: what lives for ever is not looked through again",
        "gc.disable(), and gc.collect() every few hundred steps, on all ranks at the same step",
        "fewer small objects per step: no lists of Python floats, no dictionaries per sample",
    ),
)

SUBNORMAL: Final = FindingKind(
    id="work.subnormal",
    tries=("flush_denormal",),
    title="the CPU is slow where numbers are subnormal",
    bottleneck=Bottleneck.KERNEL,
    is_pause=True,
    supersedes=(
        Supersedes("host.launch_bound", Way.BEHIND, NAMES),
        Supersedes("kernel.unfused", Way.BEHIND, NAMES),
    ),
    meaning="Numbers below 1.2e-38 in single precision are subnormal. A CPU computes with them by microcode, many times as slowly. What decays without input becomes so and may stay so: currents and voltages of neurons, traces, the state of a filter. Those that are one factor of a product make all of it slow.",
    measured="profkit capture reads some values of what modules take and give, of what functions hold, of parameters, gradients and the optimizer's state, in a step that it does not time. Where some are subnormal, and the thread does not take them for zero: operators of arithmetic that take longer at the same passes of a loop in each step. Their time, less what the quickest passes take. Of what modules take and functions hold it times a product of 64 x 64 values, and one with zeros in place of the subnormal ones: products with a tensor of that shape, by recorded shapes, at twice the first one's rate or less. Their time, less the part that zeros take: none becomes faster than zeros were.",
    thresholds={
        "window": WORTH_WORK,
        "longer": Threshold(4, "where an operator takes {} times as long or more", "measured: 12 to 17 times", ""),
        "quickest": Threshold(0.25, "as in the quickest {} of the passes", "chosen: they compute with usual numbers"),
        "times": Threshold(
            2,
            "where a product takes {} times as long or more",
            "measured: 7 to 12 times where 6 % of a factor are so",
            "",
        ),
        "passes": Threshold(0.1, "in {} of the passes or more", "chosen: fewer save little"),
        "steps": Threshold(2, "in each of {} steps or more", "chosen: what is late in one alone had no core", ""),
    },
    lookalikes=("a tensor that grows from pass to pass, beside a few subnormal numbers elsewhere",),
    proof="Call torch.set_flush_denormal(True) right behind import torch: the step becomes shorter by about the time shown.",
    fixes=(FLUSH, FLUSH + "; or set them to zero once where they are made: x[x.abs() < 1e-30] = 0"),
)

RECOMPILE: Final = FindingKind(
    id="host.recompile",
    title="torch.compile compiles inside the recorded steps",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="compiling",
    supersedes=_IS_THE_HOSTS,
    meaning="A compiled function holds for what it was compiled with: shapes, Python numbers, types. What differs is compiled again, which takes seconds, until the limit of recompilations (8 by default) is reached; from then on the function runs uncompiled.",
    measured="Ranges of the compiler (dynamo's compile_inner) on the threads of the step. On a GPU, what it would idle less without them counts, by a replay of the launches; on a CPU, all of their time. It recurs with compilations in two steps or more, not all in the first half of the window; else it may be the first use of functions.",
    thresholds={
        "window": _WORTH,
        "steps": Threshold(2, "it recurs with compilations in {} steps or more", "chosen", ""),
    },
    lookalikes=(
        "the first steps: record after warm-up",
        "an evaluation or a last, smaller batch: it compiles once more, and then no longer",
    ),
    proof="TORCH_LOGS=recompiles names the guard that failed. Make that value constant (or mark_dynamic): the compilations are gone.",
    fixes=(
        "torch._dynamo.mark_dynamic(tensor, 0), or torch.compile(dynamic=True), for shapes that change",
        "pad or bucket lengths, and drop_last=True, so that few shapes occur",
        "pass changing Python numbers (step, learning rate) as tensors",
    ),
)

GRAPH_BREAKS: Final = FindingKind(
    id="host.graph_breaks",
    title="torch.compile's graph is broken into pieces",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="graph breaks",
    supersedes=_IS_THE_HOSTS,
    meaning="Where torch.compile meets a call that it cannot trace (print, .item(), a C extension) or a branch on a tensor's value, the graph ends. Python runs the call, then checks the guards of the next piece and enters it. Nothing is fused across the break.",
    measured="A compiled function's range inside that of another one, on the threads of the step: what goes on behind a break. From the last work before it to the first work in it, without breaks at which something is compiled: on a GPU, what it would idle less without them counts, by a replay of the launches; on a CPU, all of their time.",
    thresholds={"window": _WORTH},
    notes=(
        "what fusion across the break would save is not in the time shown",
        "a function that torch.compile gives up on as a whole leaves no range, and is not seen",
    ),
    lookalikes=(
        "layers that are compiled one by one: their ranges stand side by side, and that is no break",
        "a break between the model and its loss, or at a checkpoint, costs little",
    ),
    proof="torch.compile(fullgraph=True) raises an error at the first break. Move that line out of the model: the break is gone, and the step shorter by about its part of the time shown.",
    fixes=(
        "TORCH_LOGS=graph_breaks names the line of each break: move prints and .item() out of the compiled function",
        "torch.where in place of a branch on a tensor's value",
        "fullgraph=True, so that a new break is an error",
        "torch.compiler.disable around a call that must stay, at the model's edge",
    ),
)

OPTIMIZER_LOOP: Final = FindingKind(
    id="host.optimizer_loop",
    tries=("fused", "foreach"),
    title="the optimizer works through its parameters one by one",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="optimizer",
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND, MOSTLY),),
    meaning="With foreach=False, on a CPU the default, optimizer.step() runs some ten small operators for each parameter tensor. On a GPU each is a launch; on a CPU each has its fixed cost and one more pass over memory.",
    measured="Ranges Optimizer.step with many operators outside those of the foreach or fused kind, which are left out: of several groups of parameters one may be looped over. On a GPU, what it would idle less if they took the host no time counts, by a replay of the launches: their kernels and collectives stay whatever launches them. On a CPU, all of their time.",
    thresholds={
        "window": WORTH_WORK,
        "operators": Threshold(
            40, "with {} operators or more in each step of the optimizer", "chosen: four parameters' worth", ""
        ),
        "each": Threshold(
            50_000,
            "that take {} each or less, with the Python between them",
            "chosen: on large parameters the operators work for longer, and the loop is not what costs",
            "ns",
        ),
    },
    notes=(
        "on a CPU a part stays, measured with AVX-512 on 6 to 100 tensors: fused takes 0.2 to 0.4 of the loop's time for Adam and AdamW, 0.3 to 0.5 for Adagrad, 0.4 to 0.7 for SGD; foreach 0.6 or more",
    ),
    lookalikes=("an optimizer of one's own: it has no fused form", "gradient clipping inside the optimizer's step"),
    proof="Set fused=True (or foreach=True): the optimizer's range becomes a few operators, and the step shorter by up to the time shown.",
    fixes=("fused=True, or foreach=True where that is not taken", "fewer, larger parameter tensors"),
)

PARAMETER_LOOP: Final = FindingKind(
    id="host.parameter_loop",
    title="a loop of Python works through the parameters one by one",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="parameters",
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND, NAMES),),
    meaning="Averages of the weights (EMA), clipping, norms of gradients for a log, zeroing: written as a loop, they run some operators for each parameter tensor, and with .item() wait for each. torch has each of these for all tensors at once.",
    measured="Stretches with no operator of the forward or backward pass nor of the optimizer in which most operators take tensors of the shapes of gradients, by recorded shapes. On a GPU, what it would idle less if they took the host no time counts, by a replay of the launches; on a CPU, all of their time, less a quarter that stays.",
    thresholds={
        "window": Threshold(0.03, "fires at {} of the window", "chosen: what a blind round counts as a fault"),
        "operators": Threshold(40, "with {} such operators or more in a stretch", "chosen: as host.optimizer_loop", ""),
        "each": Threshold(
            50_000, "most of {} each or less", "chosen: longer ones work, and take as long for all at once", "ns"
        ),
        "stays": Threshold(
            0.25,
            "on a CPU {} of the time stays",
            "measured on a CPU with 121 and 171 small tensors: 9 % of clipping, 36 % of an average",
        ),
    },
    lookalikes=("work on single samples of a parameter's shape",),
    proof="Leave the loop out for some steps: the step becomes shorter by about the time shown.",
    fixes=(
        "all tensors at once: torch._foreach_lerp_ or torch._foreach_mul_ for an average, torch.nn.utils.clip_grad_norm_(foreach=True) to clip, torch.nn.utils.get_total_norm for a norm; read numbers (.item()) once per step or less",
    ),
)

LAYER_LOOP: Final = FindingKind(
    id="host.layer_loop",
    title="small layers are called one by one, though none waits for another",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="layers",
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND, NAMES),),
    meaning="A list of small layers, one for each column of a table or each head, is called in a loop of Python. Each call has its fixed cost, forward, backward and in the optimizer, and computes next to nothing. One operation on all of them costs as much as a few.",
    measured="Embeddings, and linear layers with a select or a slice right before each, of many modules of one list, near each other and each once, by the modules that the capture names: from the first to the last, and their backward nodes. On a GPU, what it would idle less if they took the host no time counts, by a replay of the launches; on a CPU, all of their time, less a quarter that stays.",
    thresholds={
        "window": WORTH_WORK,
        "layers": Threshold(32, "with {} layers or more in a loop", "chosen: fewer are heads of a model", ""),
        "each": Threshold(50_000, "most of {} each or less", "chosen: as host.parameter_loop", "ns"),
        "stays": Threshold(0.25, "on a CPU {} of the time stays", "chosen: as host.parameter_loop"),
    },
    lookalikes=("layers of large tables: there the look-ups themselves take the time",),
    proof="Put one operation in their place: the result is the same, and the step becomes shorter by about the time shown.",
    fixes=(
        "one operation for all: a single nn.Embedding of all tables with an offset for each column (index + offsets); one weight of shape (columns, in, out) with torch.einsum, or a product that broadcasts",
    ),
)

UNREAD: Final = FindingKind(
    id="work.unread_forward",
    tries=("no_grad",),
    title="forward work in each step that no backward pass reads",
    is_about_work=True,
    # of small layers it is overhead as well, which goes with it
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND, 2 / 3),),
    meaning="Part of the step runs a model forward, and no gradient comes from it: evaluation inside the training step, a metric, sampling. It may be meant; it need not run in each step, nor twice on the same data.",
    measured="Outermost operators of the step's threads to which autograd's sequence numbers lead no backward node, beside the backward pass and the optimizer: stretches that multiply matrices, from their first product to their last operator, outside of forward passes that train. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, all of their time. A saving is named only of modules that train in the same steps, or where the line that calls it says that it evaluates; of modules that never train it is work.frozen_forward.",
    thresholds={"window": Threshold(0.1, _WORTH.says, "chosen: less is a target network or an actor that is meant")},
    lookalikes=("an actor that sees new data in each step is needed", "pseudo-labels and other targets"),
    proof="Leave it out for some steps, or do it in every tenth: the step becomes shorter by about the time shown.",
    fixes=(
        "if it is an evaluation or a metric: every so many steps, on fewer batches, or on the outputs that the training step has anyway",
    ),
)

FROZEN: Final = FindingKind(
    id="work.frozen_forward",
    tries=("no_grad",),
    title="a model that never trains runs in each step; where samples come again, its outputs can be kept",
    meaning="A teacher, a target network or a frozen encoder runs forward, and nothing in it trains. The loss may need its outputs: then it can go only where the same samples come again, and their outputs are kept.",
    measured="As work.unread_forward, of stretches of which a quarter or more is in modules that no backward pass reaches. No saving is named: no trace shows whether the same samples come again.",
    thresholds={"window": UNREAD.thresholds["window"]},
    lookalikes=("a teacher, a target network or an encoder that sees new data in each step is needed",),
    proof="Keep its outputs for some samples, and train on these alone: the step becomes shorter by up to the time shown.",
    fixes=(
        "keep its outputs for each sample where the inputs come again (a frozen backbone, a teacher on fixed data), in half precision or compiled where they do not, under torch.no_grad()",
    ),
)

NO_GRADIENT: Final = FindingKind(
    id="work.no_gradient",
    title="part of the forward pass needs no gradient: if it is the same in each step, it can be made once",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="The forward pass makes a tensor that depends on nothing that trains: a mask, a positional encoding, anchors, a normalised adjacency, a table. What is the same in each step can be made once. What depends on the batch can be made with it, by the workers of a DataLoader, or once for each sample.",
    measured="Outermost operators between those that a backward node comes back to, or before the first of them inside a module that trains, to which none comes back: runs that stand in every step with the same names and recorded shapes, without random numbers, and have 1 % of the window or more. Not those whose first tensor, or the first behind what they gather, has as many rows as what the model works on, or that take one of the shape of its inputs: they are of the batch; nor those that make text of a tensor; without shapes nothing is said. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, all of their time. Runs that make nodes of a graph depend on what trains, and are left out.",
    thresholds={"window": Threshold(0.1, "fires at {} of the window", "chosen: as work.unread_forward")},
    is_bound=True,
    lookalikes=("features, targets, neighbours or routes that are made of the batch: each step has others",),
    proof="Make it once before the loop and hand it in: if the loss stays the same, it was a constant, and the step is shorter by about the time shown.",
    fixes=(
        "if it is the same in each step, make it once before the loop (register_buffer, functools.lru_cache, an argument); if it depends on the batch, make it once per batch and hand it to all layers, or in the DataLoader's workers",
    ),
)

ANOMALY: Final = FindingKind(
    id="host.anomaly_mode",
    title="autograd's anomaly mode is on",
    bottleneck=Bottleneck.OVERHEAD,
    is_pause=True,
    late_phase="host",
    late_word="anomaly mode",
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND, NAMES),),
    meaning="torch.autograd.set_detect_anomaly(True) stores the Python stack of each forward operation and looks for NaN in each gradient of the backward pass, which waits for the device. It is for finding a bug, not for training.",
    measured="Inside backward nodes the look for NaN (aten::isnan to aten::item around aten::_is_any_true); and for each operator that makes a node as much as views take there that make one (the median): they do nothing but store the stack. On a GPU, what it would idle less without these; on a CPU, all of their time.",
    thresholds={"window": _WORTH},
    lookalikes=("a hook of one's own that looks for NaN in gradients",),
    proof="torch.autograd.set_detect_anomaly(False): the operators aten::_is_any_true are gone from the backward pass, and the step is shorter by about the time shown.",
    fixes=("remove torch.autograd.set_detect_anomaly(True), and torch.autograd.detect_anomaly() around the loop",),
)

PILED: Final = FindingKind(
    id="work.unused_gradients",
    title="the backward pass computes gradients that no optimizer uses",
    is_about_work=True,
    meaning="Gradients are computed for parameters that the optimizer does not have: a teacher that runs without torch.no_grad(), a part that was meant to be frozen, a discriminator in the generator's step. They pile up in .grad, since nobody clears them there.",
    measured="In the first backward pass after an optimizer's step, accumulations (AccumulateGrad) that add to a gradient that was left, where others of the pass find none: the nodes that lead to them. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, all of their time. Of nodes through which gradients flow on to parameters in use half is counted: only those of their own weights can be spared.",
    thresholds={
        "window": WORTH_WORK,
        "gradients": Threshold(2, "with {} such gradients or more in a pass", "chosen: a layer's weight and bias", ""),
    },
    notes=(
        "after model.zero_grad() or zero_grad(set_to_none=False), with optimizers that clear gradients by means of their own, or in a model of which all gradients are added to, it is not seen",
    ),
    lookalikes=("a second optimizer that steps later and takes the sum of several passes on purpose",),
    proof="Print the names of parameters with p.grad is not None right after optimizer.zero_grad(): these are not in the optimizer. Freeze them: the step becomes shorter by about the time shown.",
    fixes=(
        "run what does not train under torch.no_grad(); freeze its parameters with requires_grad_(False), also a discriminator during the generator's step",
    ),
)

DROPPED: Final = FindingKind(
    id="work.dropped_gradients",
    title="backward passes compute gradients of weights that zero_grad drops",
    is_about_work=True,
    supersedes=(Supersedes(PILED.id, Way.SAID_ONCE, 0.5),),
    meaning="loss.backward() computes the gradients of all parameters, and here nobody reads them: zero_grad clears them before an optimizer steps. An attack (PGD, FGSM), an input that is optimized, a saliency map need the gradient of their input alone.",
    measured="Between two steps of the optimizers, backward passes before the last zero_grad. Their nodes with products that make the gradient of a weight, of which half stays for that of the input, and what stores gradients. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their time.",
    thresholds={
        "window": WORTH_WORK,
        "gradients": Threshold(2, "with {} gradients or more in a pass", "chosen: a layer's weight and bias", ""),
    },
    notes=(
        "not where operators behind the pass may read a gradient of each parameter (SAM, norms of gradients), nor where one optimizer clears and another steps",
        "after zero_grad(set_to_none=False), or model.zero_grad(), it is not seen",
    ),
    lookalikes=("code that reads few of the gradients before they are cleared",),
    proof="Put torch.autograd.grad(loss, x) in the place of loss.backward() and x.grad, x being what is attacked: the losses stay the same, and the step is shorter by about the time shown.",
    fixes=(
        "grad, = torch.autograd.grad(loss, x) in place of loss.backward() and x.grad: it computes the gradient of x alone",
    ),
)

CPU_OPERATORS: Final = FindingKind(
    id="host.cpu_operators",
    title="the GPU waits for operators on the CPU",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="CPU operators",
    supersedes=_IS_THE_HOSTS,
    meaning="Tensors that live on the CPU are worked on there, by the thread that launches the GPU's work: batches or noise that are made with torch.randn, conversions before a copy, an optimizer whose state was moved to the CPU.",
    measured="Operators of the threads that launch, in which nothing is launched, copied or waited for; outside the input pipeline and the compiler. What the GPU would idle less without them counts, by a replay of the launches.",
    thresholds={
        "window": WORTH_WORK,
        "each": Threshold(100_000, "of {} each or longer", "chosen: dispatching an operator takes up to 50 us", "ns"),
    },
    lookalikes=("the host is far ahead: then they cost nothing, and are no finding",),
    proof="Replace their result by a tensor that is made once, on the GPU: the step becomes shorter by about the time shown.",
    fixes=(
        "create tensors on the GPU (device='cuda')",
        "move the work into workers of the DataLoader, or into a thread that runs ahead",
        "copy first, convert on the GPU",
    ),
)

GIL: Final = FindingKind(
    id="host.gil",
    title="another thread of Python holds the lock (GIL) that the training thread needs",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="the lock of Python",
    supersedes=(*_IS_THE_HOSTS, Supersedes("host.optimizer_loop", Way.BEHIND)),
    meaning="One thread at a time runs Python in a process. Each operator lets the lock (the GIL) go and takes it again behind it: a thread that runs plain Python keeps it for 5 ms each time (sys.getswitchinterval), so a monitor, a logger or a loader written in Python holds the training thread up at every operator.",
    measured="profkit capture reads from the Linux scheduler how long each thread of Python has run in the recorded steps, and how long the training thread slept. Meanwhile a thread looks at their stacks every few milliseconds: a look that comes late has waited for the lock, and who ran meanwhile held it. What the training thread lost is the least of three: its sleep without waits for data and ranks, the time outside innermost operators, and what those threads ran. Where operators have a thread for each core, one of these waits while such a thread runs: of what it ran besides, the share of operators is lost as well. A fix saves at most what those threads ran or were ready to run, and where operators have one thread or leave cores free, no more than the time in which the training thread did not run.",
    thresholds={
        "window": WORTH_WORK,
        "held": Threshold(
            0.1,
            "of threads that hold the lock for {} of the time or more",
            "chosen: a third and more where a thread of plain Python runs for two thirds of the time",
        ),
    },
    lookalikes=(
        "a thread that computes in torch or numpy: these let the lock go",
        "a thread that sleeps or reads: it does not run",
    ),
    proof="Do not start that thread, or let it sleep: the step becomes shorter by about the time shown.",
    fixes=(
        "move that work into a process of its own (multiprocessing, a DataLoader's worker)",
        "do it in numpy or torch, which let the lock go, or less often, with time.sleep() between",
    ),
)

CONTENTION: Final = FindingKind(
    id="host.contention",
    tries=("threads",),
    title="the training thread waits for a core",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="waits for a core",
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND), Supersedes("host.optimizer_loop", Way.BEHIND)),
    meaning="More threads want to run than there are cores: threads of operators, loader workers, the thread pools of all ranks of the machine. Meanwhile the training thread is ready and does not run: it launches late, and on a CPU its operators take longer.",
    measured="profkit capture reads what the Linux scheduler counts for the training thread: the time that it was ready and waited (schedstat), over the recorded steps, and how often its core was taken from it (context switches). Time that the container's quota takes is part of it. With more threads for operators than cores, a fix also saves what the thread slept in operators; a tenth of such sleep is enough where it hardly waits. At most it saves all that operators take on a CPU: threads that spin until the others have had a core look like work. Threads for operators (torch.get_num_threads(), which OMP_NUM_THREADS sets) are counted for all ranks of the machine that were started with the same cores. Time that late launches have in common with it is not counted as theirs.",
    thresholds={
        "window": Threshold(0.05, "fires at {} of the recorded time", "chosen: the severity medium"),
        "crowding": Threshold(
            1, "names OMP_NUM_THREADS with more than {} thread for operators to a core", "chosen", ""
        ),
        "own": Threshold(
            0.75,
            "it is the job's own where its processes ran on {} of the cores' time or more",
            "chosen: with one strange busy thread on two cores they have half",
        ),
    },
    notes=("where other programs take the cores, host.cores_taken says so",),
    lookalikes=("a core shared by hyper-threads is slower, and nobody waits",),
    proof="Halve the loader's workers, or set OMP_NUM_THREADS=1: if the step becomes shorter, cores were missing.",
    fixes=(
        "no more threads than cores: OMP_NUM_THREADS x ranks + loader workers",
        "fewer workers of the DataLoader: no more than cores that training leaves free",
        "pin each rank to cores of its own (torchrun --numa-binding, taskset, numactl)",
        "a larger CPU quota of the container",
    ),
)

IDLE_CORES: Final = FindingKind(
    id="host.idle_cores",
    tries=("threads",),
    title="operators run on few threads, while cores stand idle",
    leads_from=inf,
    is_about_work=True,
    meaning="PyTorch splits large operators among threads (torch.get_num_threads()). Where a script, a job's OMP_NUM_THREADS or torchrun (which sets 1 where nothing is set) leaves fewer of them than there are free cores, each such operator takes longer than it needs. It may be meant: for a machine that others share, or for results that stay the same to the last bit.",
    measured="profkit capture reads how long the cores that the process may use ran nothing while steps were recorded (/proc/stat), what its own threads and what it started ran, and the container's quota. Ranks, loader workers and other programs keep what they took; of hyper-threads one counts. Operators that threads share: products, convolutions, and elementwise operators, reductions, norms, copies and gathers of more than 32768 elements for each thread (ATen's grain), of 20 us or more. With two threads in place of one they took 45 % less, beside some 3 us for each to start (measured on two cores): about that much is told, for twice the threads. At most each takes a share as its threads rise.",
    thresholds={
        "window": Threshold(
            0.2,
            "fires where such operators take {} of the window",
            "chosen: with less, twice the threads save under 10 %",
        ),
        "each": Threshold(
            20_000, "of {} each or more", "measured on two cores: shorter ones took less than a third less", "ns"
        ),
        "more": Threshold(
            2, "there is a core for {} times as many threads", "chosen: what was measured is twice the threads", ""
        ),
    },
    notes=(
        "it leads no verdict: few threads may be meant",
        "where other programs take these cores at another time, threads wait for each other: on two cores that were full, steps then took 3 to 5 times as long (measured)",
    ),
    lookalikes=(
        "a thread of each of several programs that share the machine, at another time than this recording",
        "operators that wait for memory: two threads share its bandwidth",
    ),
    proof="Call torch.set_num_threads() with that number, behind import torch: the step becomes shorter by about the time shown. `profkit try` measures it (threads).",
    fixes=("torch.set_num_threads(), or OMP_NUM_THREADS, with as many threads as each rank has free cores",),
)

CORES_TAKEN: Final = FindingKind(
    id="host.cores_taken",
    title="other programs take the cores of the training thread",
    meaning="Programs that are not of this job run on its cores. Meanwhile the training thread is ready and does not run. All that the step does takes longer by it, in proportion, and the times of this recording are no measure of the job.",
    measured="As host.contention, where the processes of this job ran on too little of the time of the cores for these waits, or where nobody counted what they ran: then it is not said whose programs those are.",
    thresholds={},
    notes=("it is never the verdict: nothing in the job causes it",),
    lookalikes=("a process of this job that left its parent is taken for another program",),
    proof="Record again while nothing else runs: the waits are gone.",
    fixes=(
        "find what else runs on these cores (top), and record again without it",
        "pin the job to cores of its own (taskset, numactl)",
    ),
)

THROTTLED: Final = FindingKind(
    id="clock.throttled",
    title="the device lowers its clock",
    is_about_work=True,
    meaning="A GPU lowers its clock where it is too hot, where its board asks for it, or to stay within its power limit; a CPU where it is too hot. Work that computes takes longer in proportion, work that waits for memory hardly. In a job of several ranks all wait for the slowest device.",
    measured="profkit capture asks nvidia-smi ten times a second for the clock of the multiprocessors, the driver's own reasons for a lower one, temperature and power; of a CPU it reads Linux' cpufreq, and the time that the package was throttled. Samples in the recorded steps count, those of an idle GPU do not. The share is that of the clock that was held back, of the compute.",
    thresholds={
        "window": Threshold(
            0.05, "fires where the full clock could save {} of the window", "chosen: the severity medium"
        ),
        "samples": Threshold(5, "{} samples or more are needed", "chosen: half a second", ""),
    },
    notes=(
        "it is never the verdict: all that the device computes takes longer by it, in proportion",
        "a power limit that is the board's default is no finding: products of large matrices reach it on a healthy board",
    ),
    lookalikes=(
        "clocks that were set (nvidia-smi -lgc, application clocks): that is no throttling and is not said",
        "kernels that wait for memory: they take as long at a lower clock",
    ),
    proof="Lower the power limit on purpose (nvidia-smi -pl, as root): if kernels become longer in proportion to the clock, the clock is what limits them.",
    proof_on_cpu="Limit the clock on purpose (cpupower frequency-set --max, as root): if operators become longer in proportion, the clock is what limits them.",
    fixes=(
        "better cooling: airflow, fans, a cooler inlet, fewer boards side by side",
        "check the board's power supply and cables: a power brake comes from outside the chip",
        "raise the power limit back to the board's default (nvidia-smi -pl, as root)",
        "give the job another device, where only one of them is slow",
    ),
)

UNUSED_PARAMETERS: Final = FindingKind(
    id="comm.unused_parameters",
    tries=("ddp_static",),
    title="DDP searches for unused parameters in every step",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="searching",
    meaning="With find_unused_parameters=True, DistributedDataParallel walks through the graph of every step before its backward pass, marks each gradient that came, and reduces one more small tensor, for which all ranks wait.",
    measured="The reducer's range search_unused_parameters. On a GPU, what it would idle less without it counts, by a replay of the launches; on a CPU, all of its time, that of the marks (operators inside AccumulateGrad and copy_bucket_to_grad), and that in which only the last all-reduce of the pass runs.",
    thresholds={"window": _WORTH},
    lookalikes=("a model whose branches differ from step to step needs it",),
    proof="Set find_unused_parameters=False. DDP raises an error at the second step if a parameter is unused.",
    fixes=("find_unused_parameters=False", "static_graph=True where the same parameters are unused in every step"),
)

RECOMPUTATION: Final = FindingKind(
    id="work.recompute",
    title="the backward pass computes activations again",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="Activation checkpointing keeps less in memory and pays with a second forward pass: about a third more compute where all of the model is checkpointed. Where memory is free, that is time for nothing.",
    measured="Operators of the forward side (they have an autograd number and no forward thread) inside backward nodes. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their own and that of the Python before each. Collectives that are launched again are not counted.",
    thresholds={"window": WORTH_WORK},
    notes=("what checkpointing costs in the forward pass is not in the time shown: Python, weighty on small layers",),
    lookalikes=("gradients of gradients also run forward operators inside the backward pass",),
    proof="Turn checkpointing off for half of the layers: the step becomes shorter by about half of the time shown, if memory allows it.",
    fixes=(
        "checkpoint fewer layers, as far as memory allows",
        "selective checkpointing: keep the results of matrix products and attention, compute the cheap rest again",
    ),
)

MATH_ATTENTION: Final = FindingKind(
    id="kernel.math_attention",
    title="attention runs without a fused kernel",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="scaled_dot_product_attention has fused kernels. Where none takes these inputs, where weights are asked for, and where a model writes attention out, separate operators write the whole matrix of scores to memory and read it several times.",
    measured="Operators aten::_scaled_dot_product_attention_math; elsewhere what stands between two batched products of the same pass with a softmax, or its backward, between them, where that is of what the first one makes and the second one takes, by recorded shapes: the products themselves stay. On a CPU, not where a mask is added whose gradient is summed over the batch, as a learnt bias: its fused kernel takes no mask that needs a gradient (torch 2.13). On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their own. The backward of that operator is not counted.",
    thresholds={"window": WORTH_WORK},
    lookalikes=("short sequences: their matrix of scores is small, and a fused kernel gains little",),
    proof="with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION): the call raises an error that names what the kernel does not take.",
    proof_on_cpu="Time F.scaled_dot_product_attention on tensors of these shapes beside the operators: the step becomes shorter by the difference, for each layer, forward and backward.",
    fixes=(
        "half precision, head sizes that are multiples of 8 and at most 256",
        "is_causal=True in place of a mask tensor",
        "F.scaled_dot_product_attention in place of softmax between two products; need_weights=False in nn.MultiheadAttention",
    ),
)

TRAINING_MODE: Final = FindingKind(
    id="mode.training",
    title="layers run in training mode, without a backward pass",
    is_about_work=True,
    meaning="A module is in training mode until model.eval() is called: dropout draws random numbers and multiplies, batch normalisation computes statistics of each batch. An inference pays for that, and its results are others.",
    measured="Operators of dropout, and batch normalisation that computes statistics (by its recorded argument, or by the names of the kernels that it launches), where no backward pass and no optimizer was recorded; without operators, the launches of such kernels. Of batch normalisation half at most can be saved: it normalises in any mode. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their own time.",
    thresholds={"window": WORTH_WORK},
    lookalikes=(
        "a recording of the forward pass of a training step alone: there it is meant",
        "dropout that is meant at inference (Monte Carlo dropout)",
    ),
    proof="Call model.eval() before the loop: dropout's operators are gone, and batch normalisation uses the running statistics.",
    fixes=("if this is inference: model.eval(), and torch.inference_mode() around the loop",),
)

SLOW_PATH: Final = FindingKind(
    id="kernel.slow_path",
    title="an operator takes a slow way",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="Operators have fast implementations for usual types, layouts and shapes, and fall back to general ones for others: a convolution to a copy into columns and a product, a gradient of an index to sorting.",
    measured="Operators that exist for the fall-back alone, by name, but for a CPU's 1x1 convolutions, where recorded shapes tell them: these copy no columns, and took less time than oneDNN's on one thread (measured); MIOpen's naive kernels, by name. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their own time. The fast way takes time as well: it saves less than that.",
    thresholds={"window": Threshold(0.1, _WORTH.says, "chosen: twice the severity medium: part of it stays")},
    lookalikes=("a shape that no fast implementation takes: then another shape is the change",),
    proof="Run that operator alone, with the other type or layout, and compare its time.",
    fixes=("give the operator the type, layout and shape that its fast implementation takes",),
)

LAYOUT_COPIES: Final = FindingKind(
    id="kernel.copies",
    title="tensors are copied to change their layout",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="A transposed or sliced view is copied when contiguous(), reshape() or an operator needs its elements in order. The copy computes nothing.",
    measured="Operators aten::contiguous and aten::reshape that copy, but for the gradients that a convolution or attention puts in order for itself, and for what torch's MultiheadAttention and installed packages copy in code of their own. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their own time.",
    is_estimated=True,
    thresholds={
        "window": WORTH_WORK,
        "stays": Threshold(
            0.5,
            "on a CPU {} of their time stays",
            "chosen: half of what a copy costs comes back in the operator behind it",
        ),
    },
    lookalikes=("a copy that makes the operators after it faster by more than it takes",),
    proof="Remove one of these calls, or give the operator the strided view: the copy is gone; see whether the operator behind it takes longer.",
    fixes=(
        "keep one layout from layer to layer (channels_last; heads beside the sequence), and leave out contiguous() where the next operator takes strides; torch.compile fuses such copies",
    ),
)

CONVERSIONS: Final = FindingKind(
    id="precision.casts",
    title="tensors are converted between number formats",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="Autocast converts the weights of each layer in every forward pass (once per step with its cache, with activation checkpointing again), and where layers of different precision follow each other, activations too. Each conversion reads and writes the whole tensor.",
    measured="Operators aten::_to_copy from one floating-point format to another, by recorded types. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their own.",
    thresholds={"window": WORTH_WORK},
    notes=("weights in bf16 also halve what gradients and the optimizer move: that gain is not in the time shown",),
    lookalikes=("a batch that arrives as float32 is converted once: that is cheap",),
    proof="Keep the weights in bfloat16 (model.to(torch.bfloat16), or FSDP's mixed precision): these conversions are gone.",
    fixes=(
        "weights in bf16, with an optimizer that keeps fp32 copies",
        "torch.compile fuses conversions into the kernels around them",
        "no .float() between layers",
    ),
)
