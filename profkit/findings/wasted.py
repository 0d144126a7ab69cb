"""Work that is thrown away for most of it, or that smaller tensors would do, as recorded shapes tell."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import TO_TRY, FindingKind, Supersedes, Threshold, Way
from profkit.findings.patterns import MOSTLY, NAMES, WORTH_WORK

_MOST_OF_IT: Final = 0.5
"""Chosen: of forward work that needs no backward pass, what half of it is for names it."""
_ONCE: Final = Supersedes("work.no_gradient", Way.SAID_ONCE, _MOST_OF_IT)
_READ_BY_NONE: Final = ("work.unread_forward", "work.frozen_forward")
_FORWARD: Final = (*(Supersedes(one, Way.SAID_ONCE, _MOST_OF_IT) for one in _READ_BY_NONE), _ONCE)
_LAUNCHES: Final = Supersedes("host.launch_bound", Way.BEHIND, 1.0)

DENSE_EXPERTS: Final = FindingKind(
    id="work.dense_experts",
    title="each expert computes all tokens, of which the router picks few",
    is_about_work=True,
    meaning="A mixture of experts chooses few experts for each token. Here all experts compute all tokens, and what was not chosen is multiplied by zero.",
    measured="A choice (aten::topk, argmax or max over the last axis) of few of N columns, and before the next choice N products of the same shapes that each take all of its rows, with N products by one number for each row; or one batched product of N times all rows. By recorded shapes: from the first product to the last operator, and the backward nodes of what lies between, less the share that the choice keeps.",
    thresholds={
        "window": WORTH_WORK,
        "experts": Threshold(3, "with {} experts or more", "chosen: of two, one is half", ""),
    },
    lookalikes=("a choice that is a metric alone, beside an ensemble that is meant to compute all",),
    proof="Give each expert its tokens alone: the step becomes shorter by about the time shown.",
    fixes=(
        "give each expert its own tokens alone: rows = (index == e).any(-1).nonzero(), expert(x[rows]), out.index_add(0, rows, ...); or sort the tokens by expert",
    ),
)

NO_CACHE: Final = FindingKind(
    id="work.no_cache",
    title="each new token runs the model over the whole sequence again: no key/value cache",
    is_about_work=True,
    is_bound=True,
    supersedes=(*_FORWARD, _LAUNCHES),
    meaning="Text is generated token by token. Without a cache of keys and values each call runs the model over all tokens so far, of which only the newest is new.",
    measured="Products with the same weight whose rows grow by the same number from call to call, eight lengths or more, in forward work that no backward pass reads, by recorded shapes. Their stretches, times the share that the tokens before the newest have of each call; the time between operators stays.",
    thresholds={"window": WORTH_WORK},
    lookalikes=("growing inputs that are no prefix of each other: sorted lengths",),
    proof="Generate with the cache on: the rows of the products stay the same from call to call, and the step becomes shorter.",
    fixes=(
        "generate(use_cache=True), config.use_cache=True; in a loop of your own keep past_key_values and give the model the newest token alone",
    ),
)

FULL_SORT: Final = FindingKind(
    id="work.full_sort",
    title="all values are sorted, and few are kept",
    is_about_work=True,
    is_estimated=True,
    supersedes=(_ONCE, _LAUNCHES),
    meaning="A sort puts all values into order. Where the first few are kept, topk finds them without the rest.",
    measured="Operators aten::sort and aten::argsort with a slice of the same shape right behind them that keeps a fourth or less along an axis, by recorded shapes. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, all of their time; less the part that topk takes.",
    thresholds={
        "window": WORTH_WORK,
        "kept": Threshold(0.25, "where {} of the values are kept or less", "chosen: topk of more gains little"),
        "length": Threshold(64, "of {} values or more", "chosen: shorter ones take no time", ""),
    },
    lookalikes=("an order of all values that is used elsewhere as well",),
    proof="Put topk in its place: the step becomes shorter by about the time shown.",
    fixes=("use topk(k, largest=False) for the least values, topk(k) for the greatest, in place of the sort",),
)

MORE_ROWS: Final = FindingKind(
    id="work.more_rows",
    title="a layer computes more rows than need be",
    leads_from=TO_TRY,
    is_about_work=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, MOSTLY),),
    meaning="Rows are gathered, one many times: the nodes of a graph to its edges, a context to each position. The layer behind it gives the same output for the same row, so it computes copies for nothing. A 1x1 convolution behind an upsampling, and a layer of which the mean alone is read, can change places with it as well.",
    measured="Operators that gather (index_select, index, gather, repeat) and the products that take exactly what they made right behind them, with nothing but views and what works on each row alone between; 1x1 convolutions right behind an upsampling, to as many channels at most; products with a mean over rows right behind them, whose result nothing else takes. By recorded shapes: those operators and their backward nodes, less the share of the rows that would do.",
    thresholds={
        "window": WORTH_WORK,
        "rows": Threshold(0.5, "where {} of the rows or less would do", "chosen: half of the time is spared"),
    },
    lookalikes=("a gather of other rows than the layer takes, of the same shape by chance",),
    proof="Let them change places: the result is the same but for rounding, and the step is shorter by about the time shown.",
    fixes=(
        "let them change places: apply the layer before the rows are gathered or upsampled, layer(x)[index] in place of layer(x[index]); take a mean before it, layer(x.mean(1)) in place of layer(x).mean(1)",
    ),
)

LONG_ORDER: Final = FindingKind(
    id="work.long_order",
    title="three matrices are multiplied in the order that takes longer",
    is_about_work=True,
    meaning="A product of three matrices is the same in either order, and takes as many operations as the one in the middle is large: (q k') v makes a matrix of all pairs of rows, q (k' v) one of columns; x (A B) multiplies out two thin matrices.",
    measured="A product (mm, bmm, matmul) whose result the next one takes, with nothing but views and a factor between, where nothing else takes that result, by recorded shapes: both and their backward nodes, less the share of the operations that the other order takes.",
    thresholds={
        "window": WORTH_WORK,
        "operations": Threshold(
            0.4, "where the other order takes {} of the operations or less", "chosen: thin products are slower for each"
        ),
    },
    lookalikes=("a result that is read elsewhere, as a view of another shape",),
    proof="Set the brackets the other way: the result is the same but for rounding, and the step is shorter by about the time shown.",
    fixes=("set the brackets the other way: q @ (k.transpose(-1, -2) @ v), (x @ A) @ B",),
)

PAIRS: Final = FindingKind(
    id="work.pairs",
    title="all pairs of vectors are spread out in memory",
    is_about_work=True,
    is_estimated=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES),),
    meaning="Distances or products of all pairs, written with broadcasting (a[:, None] - b[None]), write each pair's whole vector to memory before they sum it. A product of matrices, or cdist, makes the sums alone.",
    measured="A difference or product of two tensors of which each is spread along an axis of the other, then a power or an absolute value, and a sum, mean or norm over the last axis, right behind each other. By recorded shapes: those operators and their backward nodes, less what the other way takes.",
    thresholds={"window": WORTH_WORK},
    notes=("a norm of products of large, close vectors loses digits: torch.cdist falls back where that matters",),
    lookalikes=("differences that are used elsewhere as well: then they stay",),
    proof="Put the product in its place: the result is the same but for rounding, and the step is shorter by about the time shown.",
    fixes=(
        "make the sums alone: a @ b.T for products; a.square().sum(-1)[:, None] + b.square().sum(-1) - 2 * a @ b.T, or torch.cdist(a, b).square(), for squared distances; torch.cdist(a, b, p=1) for absolute ones",
    ),
)

REBUILT: Final = FindingKind(
    id="work.rebuilt",
    title="a tensor is copied whole to add a few rows",
    is_about_work=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES), *_FORWARD),
    meaning="A queue or a history of fixed size is made anew in each step: torch.cat of the new rows and the old ones, with a slice that drops as many. All of it is copied into fresh memory.",
    measured="Operators aten::cat without a gradient whose largest part has most of the result, with a slice beside them that cuts it back to one size; aten::roll whose first rows are then written. By recorded shapes: those operators, less the share of the rows that is new.",
    thresholds={
        "window": WORTH_WORK,
        "new": Threshold(0.125, "where at most {} of the rows are new", "chosen: most of the copy is spared"),
    },
    lookalikes=("rows whose order counts: a ring buffer turns it",),
    proof="Write the new rows over the oldest ones: the step is shorter by about the time shown.",
    fixes=(
        "write the new rows in place, over the oldest ones, at a pointer that goes round: queue[at : at + n] = rows",
    ),
)

MASKED_ROWS: Final = FindingKind(
    id="work.masked_rows",
    title="layers compute rows that a mask hides and that are dropped behind them",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="A mask hides some rows of each sequence from attention, and behind the layers the other rows alone are taken. Where both are the same rows, nobody reads what the layers compute of the hidden ones. Values are not recorded, so it is a question, and no saving is promised.",
    measured="Attention with a mask of keys that is the same for all queries, and behind it in the same forward pass a gather or an index that keeps as many rows of each sequence. By recorded shapes: all that takes as many rows as the whole sequences, forward and backward.",
    thresholds={
        "window": WORTH_WORK,
        "least": Threshold(0.2, "where {} of the rows are used at least", "chosen: a head on masked words takes 15 %"),
        "most": Threshold(0.75, "and {} at most", "chosen: a masked autoencoder's decoder keeps as many"),
    },
    lookalikes=("a mask of padding, and rows that are taken for a head: what is not taken is read by attention",),
    proof="Take the rows before the first layer: if the loss stays the same, nobody read the others.",
    fixes=(
        "if the rows that are dropped are those that the mask hides, take the others before the first layer, x.gather(1, keep), and leave the mask out",
    ),
)

ZERO_ROWS: Final = FindingKind(
    id="work.zero_rows",
    title="many rows that layers compute have no influence on the loss",
    leads_from=TO_TRY,
    is_about_work=True,
    supersedes=(
        Supersedes("kernel.unfused", Way.BEHIND, NAMES),
        Supersedes("work.masked_rows", Way.SAID_ONCE, MOSTLY),
        Supersedes("work.recompute", Way.BEHIND, MOSTLY),
    ),
    meaning="Layers compute rows (tokens, pairs of atoms, edges) that are multiplied by zero or dropped behind them: by a mask, a cutoff, a gate. The loss does not depend on them, and their gradient is zero.",
    measured="profkit capture reads gradients on the CPU in the steps that it records once more, and marks the operators of which half of the rows or more are zero in each of 16 columns or more, around convolutions in each channel as well. Those operators in the timed steps, and their backward nodes, less the share of the rows that is not zero. Nothing is said where the rows nearest to the loss are zero as well, or where maxima or sorted values get gradients; nor of what computes no row without the others: Fourier transforms, running sums, decompositions of matrices.",
    thresholds={
        "window": WORTH_WORK,
        "zero": Threshold(0.5, "where {} of an operator's rows or more are zero", "chosen: dropped paths leave more"),
    },
    lookalikes=(
        "rows that have to be computed to know that they are not needed: a loss that drops what it finds easy",
        "a branch whose gradient is stopped for some rows on purpose: the backward pass alone is spared",
    ),
    proof="Leave those rows out before the first of the layers: the loss stays the same, and the step is shorter by about the time shown.",
    fixes=(
        "take the rows that count before the layers, layer(x[keep]), and put the result back by index_add or scatter; build lists of pairs or edges within the cutoff alone",
    ),
)

NO_TARGET: Final = FindingKind(
    id="work.no_target",
    title="the output layer computes rows that have no target",
    leads_from=TO_TRY,
    is_about_work=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES),),
    meaning="A loss over classes leaves out rows whose target is ignore_index: words that are not masked, a prompt, padding. The output layer, the softmax and their backward pass compute these rows all the same, for each class.",
    measured="profkit capture reads targets of cross_entropy and nll_loss of 64 classes or more on the CPU in the steps that it records once more, and the gradient of the one product that makes the logits, whose rows have to be zero as well. That product, the loss, what lies between, and their backward nodes in the timed steps, less the share of the rows that has a target.",
    thresholds={
        "window": WORTH_WORK,
        "rows": Threshold(0.3, "where {} of the rows or more have no target", "chosen: to take rows costs a copy"),
    },
    notes=("on a GPU nothing is read: that would wait for it",),
    lookalikes=("all logits are read without gradients as well, as a metric does: take its rows in the same way",),
    proof="Take the rows that have a target before the output layer: the loss stays the same but for rounding, and the step is shorter by about the time shown.",
    fixes=(
        "take the rows that have a target before the output layer: keep = target != ignore_index, then F.cross_entropy(head(hidden[keep]), target[keep]); where a library's model has the output layer, call its body and then its output layer on these rows, in a compute_loss or forward of your own",
    ),
)

ONE_HOT: Final = FindingKind(
    id="work.one_hot",
    title="one-hot vectors are multiplied by a matrix, where rows could be looked up",
    is_about_work=True,
    meaning="The product of a one-hot vector and a matrix is one row of the matrix. Looking that row up reads it alone.",
    measured="Operators aten::one_hot and the product behind that takes as many rows and columns, by recorded shapes, with what lies between, and their backward nodes.",
    thresholds={"window": WORTH_WORK},
    lookalikes=("one-hot targets of a loss, which are no input of a product",),
    proof="Put an embedding in its place: the step becomes shorter by about the time shown.",
    fixes=("use F.embedding(index, weight), nn.Embedding, or weight[index] in place of the one-hot product",),
)

DENSE_TABLE: Final = FindingKind(
    id="work.dense_table",
    title="the optimizer updates all rows of embedding tables",
    is_about_work=True,
    supersedes=tuple(
        Supersedes(one, Way.BEHIND, MOSTLY) for one in ("host.optimizer_loop", "kernel.unfused", "host.launch_bound")
    ),
    meaning="nn.Embedding gives a gradient of the whole table by default: zeros, but for the rows that the step looked up. Adam and its like then read and write each row, its gradient and both of its moments in each step.",
    measured="On a CPU: ranges Optimizer.step, and where aten::embedding_dense_backward sets a gradient to zero. Of their time, the part that recorded shapes give to tables of which a step looks up a quarter at most, less that of the rows which it looks up.",
    thresholds={
        "window": WORTH_WORK,
        "rows": Threshold(
            0.25,
            "where a step looks up {} of a table's rows or less",
            "chosen: an update of half of them would cost as much sparse",
        ),
        "optimizer": Threshold(
            0.5,
            "where {} of the optimizer's time or more goes into them",
            "chosen: else other parameters are what costs",
        ),
    },
    notes=(
        "SparseAdam leaves the moments of rows alone that a step does not look up: results differ from Adam's a little",
    ),
    lookalikes=("weight decay, or a norm of all gradients: they need every row",),
    proof="Build the tables with sparse=True and give them to SparseAdam or SGD: the optimizer's time no longer grows with their rows.",
    fixes=(
        "nn.Embedding(..., sparse=True) with SparseAdam or SGD for these tables, the other parameters in an optimizer of their own",
        "fused=True, which makes each pass over them cheaper",
    ),
)

THROWN_AWAY: Final = FindingKind(
    id="work.thrown_away",
    title="a layer computes many rows of which few are used",
    leads_from=TO_TRY,
    is_about_work=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, MOSTLY),),
    meaning="A layer computes an output for each position (token, time step, pixel), and the line behind it keeps a slice or an index of them. The rest is computed, and its gradient, all zeros, goes back through the layer.",
    measured="Backward nodes of select, slice and index, with nothing but views and what works on each row alone between them and a product. Recorded shapes say how many of its rows are used. Their times are those of the product, forward and backward, less the share that is used.",
    thresholds={
        "window": WORTH_WORK,
        "kept": Threshold(0.5, "where at most {} of the rows are used", "chosen: half of the time at least is spared"),
    },
    lookalikes=(
        "a convolution whose border is cut off: what is left needs a part of it",
        "all rows are read without gradients as well, as a metric does: then the backward pass alone is spared",
    ),
    proof="Take the slice or the index before the layer: the loss stays the same, and the step is shorter by about the time shown.",
    fixes=("take the rows before the layer: head(hidden[mask]), head(hidden[:, -1]), in place of head(hidden)[mask]",),
)

REPEATED: Final = FindingKind(
    id="work.repeated",
    title="a layer computes the same several times in a step: neither its input nor its weights change",
    is_about_work=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, MOSTLY), Supersedes("host.launch_bound", Way.BEHIND, NAMES)),
    meaning="In a loop over time or over blocks a layer is given the same tensor each time: what it computes of it, and its backward pass, is the same as before the loop. A decoder that projects the output of its encoder in each time step does so. A parametrization (orthogonal, weight_norm) computes its weight anew each time that the layer is called.",
    measured="profkit capture watches products, sums, factorizations and their like in the steps that it records once more, and marks those that take what they took before: the same objects, which nobody changed since, or what was made of these by the same calls. All but the first of each, in the timed steps, with what lies between where nothing else runs there, and their backward nodes. What each call changes (spectral_norm while it trains) is not the same.",
    thresholds={
        "window": WORTH_WORK,
        "calls": Threshold(
            2,
            "with {} calls or more on the same tensors before a backward pass",
            "chosen: the second one is one too many",
            "",
        ),
    },
    notes=("what functions outside of these make anew each time is not known as the same",),
    lookalikes=("a numpy array that changes below the tensor: such tensors are left out",),
    proof="Compute it once before the loop and hand it in: the loss stays the same, and the step is shorter by about the time shown.",
    fixes=(
        "call the layer once, before the loop, and hand its result in: projected = layer(x), then use it in each pass",
    ),
)

SAME_EACH_STEP: Final = FindingKind(
    id="work.same_each_step",
    title="the same is computed in each step: it can be made once, before the loop",
    is_about_work=True,
    supersedes=(
        _ONCE,
        Supersedes("work.repeated", Way.SAID_ONCE, _MOST_OF_IT),
        *(Supersedes(one, Way.SAID_ONCE, _MOST_OF_IT) for one in _READ_BY_NONE),
        Supersedes("kernel.unfused", Way.BEHIND, NAMES),
        _LAUNCHES,
    ),
    meaning="A step makes something of what never changes: a normalised adjacency of a static graph, a table of positions, a basis, anchors, distances of fixed points, what a frozen model gives for the same input. Its result is the same in each step, so it can be made once before the loop.",
    measured="profkit capture compares the steps that it records once more, by operators that need no gradient: the same lines call them with the same arguments and with tensors that nobody changed for a whole step, or that were made the same in this one, and the bytes of what they give are the same (above 256 kB those of 64 places). What is random, made of a new batch or of what trains is another. Those operators in the timed steps, with copies, views and new tensors between them; not in the optimizer. On a CPU all of their time; on a GPU nothing is compared.",
    thresholds={"window": WORTH_WORK},
    notes=("two steps are compared where the capture records two: what changes more seldom looks the same",),
    lookalikes=(
        "a script that trains on one batch again and again, as benchmarks do: there the batch is the same as well",
        "weights that are unpacked anew in each step so that they take less memory",
    ),
    proof="Make it once before the loop and hand it in: the loss stays the same to the last bit, and the step is shorter by about the time shown.",
    fixes=(
        "make it once, before the loop, and hand it in (an argument, register_buffer(persistent=False), functools.lru_cache)",
    ),
)

AWKWARD_FFT: Final = FindingKind(
    id="work.awkward_fft",
    title="FFTs have a length with a large prime factor",
    is_about_work=True,
    is_estimated=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES),),
    meaning="An FFT is fast by taking its length apart into small factors. A length that is a prime number, or has a large one as a factor, takes several times as long as one near it that is made of 2, 3 and 5. A convolution by FFT is padded anyway, and any longer length gives the same.",
    measured="Operators aten::_fft_r2c, _fft_c2r and _fft_c2c, forward and backward, whose recorded shapes have such a length. On a CPU, where the script pads to that length, less what a fast length takes; where it does not, no saving is named, for another length gives other frequencies. On a GPU none is named either.",
    thresholds={
        "window": WORTH_WORK,
        "prime": Threshold(
            37,
            "of lengths whose largest prime factor is {} or more",
            "measured with MKL on one CPU: such lengths take 2.2 to 27 times as long as a fast one near, those with factors of 17 to 31 from 1.1 times, with 11 and 13 often no longer",
            "",
        ),
    },
    notes=(
        "MKL has kernels for 2, 3, 5, 7, 11, 13 and some larger factors (Intel's FFT length and layout advisor); cuFFT's documentation names sizes made of 2, 3, 5 and 7 alone as highly optimised",
    ),
    lookalikes=("a spectrum whose bins are read: another length moves them",),
    proof="Pad to the fast length, and cut the result: it is the same but for rounding, and the step is shorter by about the time shown.",
    fixes=(
        "pad to a fast length and cut the result, n = scipy.fft.next_fast_len(n, real=True) or the next power of two, in rfft(n=n) and irfft(n=n) alike: a convolution stays the same; where the frequencies themselves are read, choose another window or grid",
    ),
)

FFT_SHIFTS: Final = FindingKind(
    id="work.fft_shifts",
    title="fftshift and ifftshift copy whole tensors around FFTs",
    is_about_work=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES),),
    meaning="torch.fft.fftshift moves the zero frequency to the middle, ifftshift moves it back: torch.roll, a copy of the tensor for each axis. Around a transform, a mask or filter and the transform back they undo each other, if the mask has its zero frequency first.",
    measured="Operators aten::fft_fftshift and aten::fft_ifftshift, next to transforms on their thread, where both occur: they and their backward nodes.",
    thresholds={"window": WORTH_WORK},
    lookalikes=("a spectrum that is shown, or given to a network, with the zero frequency in its middle",),
    proof="Shift the mask once before the loop and leave the other shifts out: the result is the same but for rounding, and the step is shorter by about the time shown.",
    fixes=(
        "shift the mask or filter once where it is made (mask = torch.fft.ifftshift(mask, dim=...)), and use fft2 and ifft2 without fftshift and ifftshift: between a transform and the one back the shifts cancel; data that a spectrum is compared with is shifted once as well",
    ),
)

ONE_MATRIX: Final = FindingKind(
    id="work.one_matrix",
    title="one matrix is expanded to a copy per sample, and each copy is worked on",
    is_about_work=True,
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES),),
    meaning="A weight or a covariance that all samples share is expanded to one matrix per sample. expand() itself is free, but a determinant, an inverse, a decomposition or a batched product then works on each copy, and the backward pass on each gradient, before they are summed. So does a recursion that begins with such copies, such as the covariance of a Kalman filter.",
    measured="Determinants, inverses, decompositions and exponentials of matrices whose batch has a stride of 0 in recorded arguments, or that take right behind what clone() or repeat() made of one matrix; batched products of such a matrix with four rows or less each, and solves with one matrix and a batch of right sides of four columns or less. Where matrices have memory of their own, profkit capture reads bytes on the CPU in the steps that it records once more: of 8 matrices or more that such operators or products take or give, the first, a middle and the last one are equal, with more than two values; what is computed of these counts too. All of that, what expands the matrix, and the backward nodes, less what the single matrix takes; on a CPU the dispatch stays.",
    thresholds={"window": WORTH_WORK},
    lookalikes=(
        "one matrix per sample that differs: its stride is not 0, its bytes are others",
        "matrices that are equal in these steps alone: weights of samples that nothing has trained yet",
    ),
    proof="Compute it of the single matrix and expand the result: the loss stays the same, and the step is shorter by about the time shown.",
    fixes=(
        "compute it once of the single matrix and expand the result: slogdet(weight).logabsdet.expand(len(x)), x @ weight in place of bmm, solve(matrix, b.T).T in place of a batch of right sides; a distribution takes scale_tril in place of a covariance",
        "leave out the expand() or repeat(), carry the one matrix, and let it meet what differs per sample at the end: x @ matrix.mT in place of matrix @ x[..., None], solve(matrix, b.mT).mT in place of a batch of right sides",
    ),
)

SMALL_MATRICES: Final = FindingKind(
    id="work.small_matrices",
    title="many tiny matrices are factored, one call of LAPACK for each",
    is_about_work=True,
    is_estimated=True,
    is_pause=True,  # long operators, which a profiler does not slow
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES), Supersedes("host.launch_bound", Way.BEHIND, NAMES)),
    meaning="On a CPU a batched Cholesky factor or triangular solve calls LAPACK for each matrix, and the backward pass does so several times. Of a matrix of 2 x 2 that call is nearly all of the time. torch.distributions.MultivariateNormal factors a covariance_matrix, and once more to check it.",
    measured="Cholesky factors of batches of tiny square matrices that differ, by recorded shapes and strides, and triangular solves with as many of that size; where their line names a class of torch.distributions, all else that it runs beside products: these and their backward nodes, less a tenth that stays.",
    thresholds={
        "window": WORTH_WORK,
        "rows": Threshold(3, "of {} rows or less", "chosen: what is written out by hand", ""),
        "matrices": Threshold(
            1000, "{} matrices or more", "measured: of 256 a factor written out takes 0.7 of the time", ""
        ),
    },
    notes=("with scale_tril in place of covariance_matrix, a third of the time stayed (measured)",),
    lookalikes=("inverses and determinants: batched, they take about as long as what is written out",),
    proof="Write the factor or the density out for this size: the loss stays the same, and the step is shorter by about the time shown.",
    fixes=(
        "write the factor and the solve out for this size, as operations on the entries: l11 = a11.sqrt(), l21 = a21 / l11, l22 = (a22 - l21 * l21).sqrt()",
        "write the log density out for this size, from the standard deviations and correlations; or give scale_tril= in place of covariance_matrix=, and validate_args=False: that spares the factors, the solves stay",
    ),
)

BY_COLUMNS: Final = FindingKind(
    id="work.by_columns",
    title="rows are gathered from a matrix that lies by columns",
    is_about_work=True,
    is_estimated=True,
    is_pause=True,  # long operators, which a profiler does not slow
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES), Supersedes("host.launch_bound", Way.BEHIND, NAMES)),
    meaning="A matrix may lie in memory by columns: what a DataFrame gives, a transpose, an array in Fortran's order. The values of a row are then far apart, and to fetch one costs a cache line for each value.",
    measured="On a CPU aten::index and index_select of rows, by one list of indices, of a large tensor whose recorded strides grow from the first axis on, that needs no gradient and that no view made right before: their time, less a tenth that stays.",
    thresholds={
        "window": WORTH_WORK,
        "values": Threshold(
            1_000_000,
            "of {} values or more",
            "measured: of as many, rows take 0.08 to 0.26 of the time; of 80,000 all of it",
            "",
        ),
    },
    lookalikes=("a matrix that is made anew in each step: to copy it takes time as well",),
    proof="Call .contiguous() on it once before the loop: the step becomes shorter by about the time shown.",
    fixes=(
        "call .contiguous() on it once, before the loop: of a DataFrame torch.from_numpy(np.ascontiguousarray(frame.to_numpy(...)))",
    ),
)

FIGURES: Final = FindingKind(
    id="work.figures",
    title="a figure is computed in each step, and no gradient goes through it",
    is_about_work=True,
    is_bound=True,
    is_pause=True,  # one long operator, which a profiler does not slow
    supersedes=(Supersedes("kernel.unfused", Way.BEHIND, NAMES), _ONCE),
    meaning="Singular values, eigenvalues, a condition number or a histogram say how a matrix or a layer does. They are dear, and the loss seldom needs them without a gradient: often a log reads them every hundred steps.",
    measured="Operators linalg.eigvals, eigvalsh, svdvals, cond, matrix_rank, histc, histogram and corrcoef in each step, between operators of the forward pass that a backward node comes back to or right behind these, to which none comes back. No trace shows what reads their result, so their time is a bound.",
    thresholds={"window": Threshold(0.03, "fires at {} of the window", "chosen: what a blind round counts as a fault")},
    lookalikes=("a norm by which weights are divided, a threshold that is taken of a histogram: the loss needs it",),
    proof="Leave it out for some steps: if the loss stays the same, nothing but a log read it, and the step is shorter by about the time shown.",
    fixes=(
        "if nothing but a log or a check reads it, compute it only in the steps that report it, or every hundred steps",
    ),
)

WASTED: Final = tuple(one for one in globals().values() if isinstance(one, FindingKind))
"""All of them, in the order of `profkit explain`."""
