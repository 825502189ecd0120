# %% [markdown]
# # 01 · Naive attention
#
# **After this lesson you can** write the attention of a real model from its formula, let that model generate text with your
# function, and say what a token will cost *before* you measure it.
#
# | | |
# |---|---|
# | Time | 60 minutes: six exercises of 5 to 13 minutes, and two measurements |
# | You need | lesson [00](00_start_here.ipynb); PyTorch tensors: shapes, broadcasting, `@` |
# | Not covered | remembering anything between tokens (lesson 02), attention in tiles (03), how queries and keys are trained |
#
# The question that runs through the course: ***what happens to my 128k-token request, and to the people who are already
# talking?*** Today's part of it: what does one token cost if an engine remembers nothing?
#
# Linked words are explained in the [glossary](../GLOSSARY.md).

# %%
import time

import torch
from torch import Tensor

from minicache import lab
from minicache.model_config import CONFIGS

torch.set_num_threads(1)  # slower, but then processor time can be compared with a clock

# %% [markdown]
# ## 1 · How well does each key fit each query?
#
# [Attention](../GLOSSARY.md#attention) lets every token look at others. Each token has three vectors: a **query** (what am I
# looking for?), a **key** (what do I offer?) and a **value** (what do I hand over?). A token looks for keys that fit its query,
# and takes a weighted mean of their values:
#
# $$\text{out}_t = \sum_s w_{ts}\, v_s \qquad w_t = \text{softmax}_s\left(\text{scale} \cdot q_t \cdot k_s\right)$$
#
# One letter for each size, here and in the whole library:
#
# | letter | is | in `smollm2-135m` |
# |---|---|---|
# | T | tokens that ask (queries) | as many as you give it |
# | S | tokens that can be looked at (keys), S ≥ T | up to 8,192 |
# | H | query heads | 9 |
# | K | [KV heads](../GLOSSARY.md#kv-head) (sections 1 to 3: one for each query head) | 3 |
# | D | [head_dim](../GLOSSARY.md#head_dim): numbers in one head's vector | 64 |
#
# A model does this several times side by side, in *heads*, each with its own vectors. Heads never mix here.
#
# The **scale** is usually $1/\sqrt{D}$: a sum of D products of numbers of size one has size $\sqrt{D}$, and without the scale the
# softmax would put all weight on one key.
#
# ### Exercise 1 · `attention_scores` · 5 minutes · difficulty 1 of 5
#
# An exercise cell becomes a *file* in your library when its check passes. So it holds everything it needs, imports included.

# %%
import torch
from torch import Tensor


def attention_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """How well each key fits each query, for every head.

    q: (T, H, D) queries. k: (S, H, D) keys. Same dtype.
    Returns (H, T, S), in the dtype of q: scores[h, t, s] = scale * (q[t, h] · k[s, h]).
    q and k are left as they are.
    """
    ### BEGIN SOLUTION one matrix product for each head
    queries = q.transpose(0, 1)  # (H, T, D)
    keys = k.permute(1, 2, 0)  # (H, D, S)
    return queries @ keys * scale
    ### END SOLUTION


# %% [markdown]
# <details><summary>A hint</summary>
#
# A matrix product does it: move the heads to the front with `transpose(0, 1)`, then (H, T, D) @ (H, D, S).
# (`lab.hint("attention_scores", 2)` says more.)
# </details>

# %%
# NBVAL_CHECK_OUTPUT
attention_scores = lab.check(attention_scores)

# %% [markdown]
# `lab.check` ran the file in a process of its own, and gave you back the function to go on with: yours if it passed, the
# library's if not. So the notebook always runs to its end.
#
# ## 2 · Who may look at whom?
#
# A model that writes text must not see the word it is about to write. So a token may look at itself and at what stands before
# it: the [causal mask](../GLOSSARY.md#causal-mask).
#
# For a whole prompt (T = S) that is a triangle. But an engine often computes only the *last* T tokens of a longer sequence, the
# keys of the others being stored already. Then T < S, and query t stands at position S − T + t.
#
# **Predict.** Five tokens are stored, three new ones arrive: T = 3, S = 8. Of the 24 (query, key) pairs, how many may look?

# %%
lab.predict(
    "visible pairs",
    guess=18,
    unit="pairs",
    question="T = 3 queries, S = 8 keys: how many of the 24 pairs are visible?",
)

# %% [markdown]
# ### Exercise 2 · `causal_mask` · 7 minutes · difficulty 2 of 5

# %%
import torch
from torch import Tensor


def causal_mask(num_queries: int, num_keys: int) -> Tensor:
    """Who may look at whom. The queries are the *last* tokens of the sequence.

    num_queries: T. num_keys: S, with 1 <= T <= S.
    Returns (T, S) bool: True where query t may look at key s, that is where s <= S - T + t.
    So the last row is all True.
    """
    ### BEGIN SOLUTION compare the position of each query with that of each key
    past = num_keys - num_queries
    query_positions = past + torch.arange(num_queries)  # (T,)
    key_positions = torch.arange(num_keys)  # (S,)
    return key_positions <= query_positions[:, None]  # (T, S)
    ### END SOLUTION


# %% [markdown]
# <details><summary>A hint</summary>
#
# Give every query its position in the whole sequence. The last of T queries stands at position S - 1; where does the first
# stand?
# </details>

# %%
# NBVAL_CHECK_OUTPUT
causal_mask = lab.check(causal_mask)

# %% [markdown]
# **Look.** A row for each of the three new tokens, a column for each of the eight keys; `#` may look, `.` may not.

# %%
# NBVAL_CHECK_OUTPUT
for row in causal_mask(3, 8).tolist():
    print(" ".join("#" if visible else "." for visible in row))

# %%
# NBVAL_CHECK_OUTPUT
lab.reveal("visible pairs", measured=int(causal_mask(3, 8).sum()))

# %% [markdown]
# **Explain in two sentences**, aloud or on paper: why must the mask be aligned at the end?
#
# <details><summary>Ours</summary>
#
# The queries are the newest tokens, so the last of them stands at the end of the sequence and may see everything. Aligned at the
# start, the mask would make the new tokens believe that they are the first ones, and hide what was said before.
# </details>
#
# ## 3 · How do scores become weights?
#
# $$\text{softmax}(x)_s = \frac{e^{x_s}}{\sum_j e^{x_j}}$$
#
# All weights are positive and sum to 1; a hidden key gets the score $-\infty$, and $e^{-\infty} = 0$. In numbers of 32 bits
# there is one trap.
#
# **Predict.** From which score on is $e^x$ infinite in float32? (The largest float32 is about $3.4 \cdot 10^{38}$.)

# %%
lab.predict(
    "overflow", guess=100, unit="", question="From which x on is exp(x) infinite in float32?"
)

# %% [markdown]
# ### Exercise 3 · `stable_softmax` · 8 minutes · difficulty 2 of 5
#
# Write it with `exp`, `sum` and what else you need, but without `torch.softmax`: lesson 03 takes it apart again.

# %%
import torch
from torch import Tensor


def stable_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension that cannot overflow.

    scores: (..., S), of any size, also 100000. Hidden keys have the score -inf; in each row at
    least one key is visible.
    Returns the same shape and dtype: each row sums to 1, exactly 0 where the score is -inf.
    scores is left as it is.
    """
    ### BEGIN SOLUTION subtract something from each row before exp
    largest = scores.amax(dim=-1, keepdim=True)  # (..., 1)
    weights = (scores - largest).exp()
    return weights / weights.sum(dim=-1, keepdim=True)
    ### END SOLUTION


# %% [markdown]
# <details><summary>A hint</summary>
#
# softmax(x) = softmax(x - c) for any c. Which c makes the largest exponent exp(0) = 1?
# </details>

# %%
# NBVAL_CHECK_OUTPUT
stable_softmax = lab.check(stable_softmax)

# %%
# NBVAL_CHECK_OUTPUT
lab.reveal("overflow", measured=float(torch.tensor(torch.finfo(torch.float32).max).log()))

# %% [markdown]
# **Explain in two sentences**: why may you subtract the largest score of a row, and why that one?
#
# <details><summary>Ours</summary>
#
# Subtracting c from every score of a row divides numerator and denominator by the same $e^c$, so the weights stay as they are.
# With the largest score as c, the largest exponent is $e^0 = 1$: nothing overflows, and the sum is at least 1, so nothing is
# divided by zero.
# </details>
#
# ## 4 · Nine query heads, three KV heads
#
# Keys and values are what an engine stores, so models save on them: several query heads share one **KV head**
# ([GQA](../GLOSSARY.md#gqa), grouped-query attention). `smollm2-135m` has H = 9 and K = 3:
#
# | query head | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |
# |---|---|---|---|---|---|---|---|---|---|
# | uses KV head | 0 | 0 | 0 | 1 | 1 | 1 | 2 | 2 | 2 |
#
# In general, query head h uses KV head h // (H // K). The results stay apart: nine query heads give nine outputs.
#
# ### Exercise 4 · `naive_attention` · 13 minutes · difficulty 3 of 5
#
# Put your three functions together. `lab.use` gives you your own version, or the library's where you skipped one, and says which.

# %%
import torch
from torch import Tensor

from minicache import lab

attention_scores = lab.use("attention_scores")
causal_mask = lab.use("causal_mask")
stable_softmax = lab.use("stable_softmax")


def naive_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Causal attention of the last T tokens of a sequence of S tokens.

    q: (T, H, D) queries. k, v: (S, K, D) keys and values. Query head h uses KV head h // (H // K).
    Query t stands at position S - T + t and sees the keys up to that position.
    Returns (T, H, D): softmax(scale * q kᵀ) v, for each query head.
    Raises ValueError, in a sentence, if H is not a multiple of K. Inputs are left as they are.
    """
    ### BEGIN SOLUTION give each query head its KV head, then scores, mask, softmax, weighted values
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} KV heads evenly.")
    k = k.repeat_interleave(heads // kv_heads, dim=1)  # (S, H, D)
    v = v.repeat_interleave(heads // kv_heads, dim=1)
    scores = attention_scores(q, k, scale)  # (H, T, S)
    hidden = ~causal_mask(q.shape[0], k.shape[0])  # (T, S)
    weights = stable_softmax(scores.masked_fill(hidden, float("-inf")))
    mixed = weights @ v.transpose(0, 1)  # (H, T, S) @ (H, S, D) -> (H, T, D)
    return mixed.transpose(0, 1)
    ### END SOLUTION


# %% [markdown]
# <details><summary>A hint</summary>
#
# Give every query head its own copy of its KV head first: then all that is left are the three functions you have.
# </details>

# %%
# NBVAL_CHECK_OUTPUT
naive_attention = lab.check(naive_attention)

# %% [markdown]
# ## 5 · Does a real model speak through it?
#
# `lab.model(attention)` is SmolLM2-135M-Instruct, 30 layers of it, as a black box that takes the attention as an argument.
# Call it with all token ids so far, and it returns the [logits](../GLOSSARY.md#logit) of the next one: a score for each of its
# 49,152 tokens. It remembers nothing between two calls.

# %%
model = lab.model(naive_attention)
prompt = model.tokenizer.chat([{"role": "user", "content": "Why is the sky blue?"}])
logits = model(prompt)
print(f"{len(prompt)} tokens in, {tuple(logits.shape)} logits out")
for token in logits.topk(3).indices.tolist():
    print(f"  {model.tokenizer.decode([token])!r:12} logit {logits[token]:.2f}")

# %% [markdown]
# **Look.** Since the attention is an argument, we can look over its shoulder: who looks at whom in one head of one layer, for a short
# sentence? White is what your mask hides.

# %%
from minicache.lab import plots

seen = []


def watched(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    k_of_each = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    hidden = ~causal_mask(q.shape[0], k.shape[0])
    scores = attention_scores(q, k_of_each, scale).masked_fill(hidden, float("-inf"))
    seen.append(stable_softmax(scores).masked_fill(hidden, float("nan")))
    return naive_attention(q, k, v, scale)


text = model.tokenizer.encode("The whale was tired because it swam all night")
model.with_attention(watched)(text)
weights = seen[13][8]  # layer 13 of 30, head 8 of 9
words = [model.tokenizer.decode([token]).strip() for token in text]
plot = plots.axes(width=5.6, height=4.4)
image = plot.imshow(weights, cmap="viridis", vmin=0, vmax=1)
plots.color_bar(plot, image, "weight")
plot.grid(False)
plot.set_xticks(range(len(words)), words, rotation=60, ha="right")
plot.set_yticks(range(len(words)), words)
plot.set_xlabel("the key that is looked at")
plot.set_ylabel("the query that looks")
plots.picture(
    plot,
    f"In layer 13, head 8, the token 'it' puts {100 * weights[5, 1]:.0f} % of its weight on "
    "'whale'. No token looks to the right of itself.",
    "computed here: smollm2-135m, float32",
)

# %% [markdown]
# Nobody wrote a rule that *it* means the whale. This head has learnt to look there; your function only computes where it looks.
#
# To *generate* text, choose a token, append it, ask again. Always choosing the likeliest token is
# [greedy decoding](../GLOSSARY.md#greedy-decoding).
#
# ### Exercise 5 · `greedy_generate` · 7 minutes · difficulty 2 of 5

# %%
from collections.abc import Callable, Sequence

from torch import Tensor


def greedy_generate(
    logits_of: Callable[[list[int]], Tensor],
    prompt: Sequence[int],
    max_tokens: int,
    stop_token: int | None = None,
) -> list[int]:
    """Generate by asking about the whole sequence again for every token.

    logits_of: from all tokens so far to (V,), the logits of the next one.
    Returns the new tokens only, at most max_tokens of them. Ends early right after stop_token,
    which is returned too; a stop_token in the prompt means nothing. Calls logits_of once for each
    new token. prompt is left as it is.
    """
    ### BEGIN SOLUTION ask, append the likeliest token, repeat
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_tokens:
        tokens.append(int(logits_of(tokens).argmax()))
        if tokens[-1] == stop_token:
            break
    return tokens[len(prompt) :]
    ### END SOLUTION


# %% [markdown]
# <details><summary>A hint</summary>
#
# Keep one list of all tokens. In each turn: ask the model about the whole list, and append the index of the largest logit.
# </details>

# %%
# NBVAL_CHECK_OUTPUT
greedy_generate = lab.check(greedy_generate)

# %%
begin = time.process_time()  # seconds of this program alone, whatever else the machine does
answer = greedy_generate(model, prompt, max_tokens=20)
seconds = time.process_time() - begin
print(model.tokenizer.decode(answer))
print(f"{1000 * seconds / len(answer):.0f} ms a token, measured here")

# %% [markdown]
# That is a real model, speaking through your attention. It is also very slow: for each new token it reads the *whole* sequence
# again. How slow, and why?
#
# ## 6 · What does a token cost?
#
# Before measuring, count. Two things take time in a processor: arithmetic, in **FLOPs** (floating-point additions and
# multiplications), and traffic to and from memory, in **bytes**.
#
# * A product of an (a × b) and a (b × c) matrix is a·b·c multiplications and as many additions: 2·a·b·c FLOPs.
# * Naive attention writes down the whole (H, T, S) matrix. That matrix crosses the memory bus at least four times: scores written,
#   read by the softmax, weights written, read again for the values.
#
# ### Exercise 6 · `attention_cost` · 8 minutes · difficulty 3 of 5


# %%
def attention_cost(
    num_queries: int,
    num_keys: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    bytes_per_element: int = 4,
) -> tuple[int, int]:
    """What one layer of naive attention costs: (FLOPs, bytes).

    FLOPs: of the two matrix products, q kᵀ and weights · v. Hidden pairs are computed like the
    others. Scale, mask and softmax are left out: they are few.
    Bytes: q (T, H, D), k and v (S, K, D) are read once, the output (T, H, D) is written once, and
    the (H, T, S) matrix crosses four times. Every number takes bytes_per_element.
    """
    ### BEGIN SOLUTION count the pairs first
    pairs = num_heads * num_queries * num_keys
    flops = 2 * pairs * head_dim + 2 * pairs * head_dim
    queries_and_output = 2 * num_queries * num_heads * head_dim
    keys_and_values = 2 * num_keys * num_kv_heads * head_dim
    numbers = queries_and_output + keys_and_values + 4 * pairs
    return flops, numbers * bytes_per_element
    ### END SOLUTION


# %% [markdown]
# <details><summary>A hint</summary>
#
# One (query, key) pair of one head costs 2·D for the score and 2·D for adding the weighted value. How many pairs are there, if
# hidden ones are computed as well?
# </details>

# %%
# NBVAL_CHECK_OUTPUT
attention_cost = lab.check(attention_cost)

# %% [markdown]
# The rest of a forward pass is products with the weights: 2 FLOPs a weight for each token, and every weight is read once. Only
# the last token needs logits.


# %%
# NBVAL_CHECK_OUTPUT
def forward_cost(config, length: int, bytes_per_element: int = 4) -> tuple[int, int]:
    """FLOPs and bytes of one forward pass over `length` tokens that remembers nothing."""
    flops, num_bytes = attention_cost(
        length, length, config.num_heads, config.num_kv_heads, config.head_dim, bytes_per_element
    )
    head = config.vocab_size * config.hidden_size  # the product that makes logits
    tables = 1 if config.tie_word_embeddings else 2  # is it also the table of input vectors?
    body = config.num_parameters - tables * head
    flops = config.num_layers * flops + 2 * body * length + 2 * head
    return flops, config.num_layers * num_bytes + (body + head) * bytes_per_element


for length in (16, 128, 512):
    flops, num_bytes = forward_cost(model.config, length)
    print(f"{length:4} tokens: {flops / 1e9:6.1f} GFLOP, {num_bytes / 1e9:5.2f} GB")

# %% [markdown]
# To turn counts into time we need what *this* machine can do at best: its two **ceilings**. They are measured on something else
# than what we want to predict: a product of two plain matrices, and a copy of a plain array. The clock counts the seconds
# that *this* program had the processor, one thread of it, so that other programs do not spoil the picture.

# %%
machine = lab.ceilings(clock=time.process_time)
print(machine)

# %% [markdown]
# **Predict.** How many milliseconds does one token take when the sequence is 512 tokens long? (At about 40 tokens you saw the
# time above.)

# %%
lab.predict(
    "token at 512",
    guess=2000,
    unit="ms",
    question="One token at a length of 512 tokens, everything recomputed: how many ms?",
)

# %%
lengths = [16, 32, 64, 128, 256, 512]
predicted = [1000 * machine.seconds(*forward_cost(model.config, n)) for n in lengths]


def milliseconds(tokens: list[int]) -> float:
    """Processor time of one call, the better of two."""
    times = []
    for _ in range(2):
        begin = time.process_time()
        model(tokens)
        times.append(time.process_time() - begin)
    return 1000 * min(times)


story = (prompt + answer) * 12
measured = [milliseconds(story[:n]) for n in lengths]

# %%
lab.reveal("token at 512", measured=measured[-1], formula=predicted[-1])

# %% [markdown]
# **Look.** The dashed line was drawn from the formula and the two ceilings alone; no measured point went into it.

# %%
plot = plots.axes()
plot.plot(lengths, predicted, "--", color=plots.FORMULA, label="predicted from the ceilings")
plot.plot(lengths, measured, "o", color=plots.MEASURED, label="measured")
plots.length_axis(plot, lengths, "tokens in the sequence")
plots.log_axis(plot, "ms for one token")
plots.picture(
    plot,
    f"One token takes {measured[0]:,.0f} ms at {lengths[0]} tokens and {measured[-1]:,.0f} ms "
    f"at {lengths[-1]} (predicted: {predicted[0]:,.0f} and {predicted[-1]:,.0f} ms).",
    machine.source,
)

# %% [markdown]
# Three things to see:
#
# * **On the left the line is nearly flat.** Reading the weights (0.5 GB) takes the same time for 16 tokens as for one.
# * **In the middle it grows in step with the length.** Each further token is 2 FLOPs for every weight.
# * **On the right it bends upwards**: attention grows with the *square*. At 512 tokens it is 14 % of the FLOPs; at 4,000
#   it would be more than half.
#
# The points lie above the line, often by a factor of two, because a ceiling is what no real program reaches, and because something is left
# out of the count: a product with few rows reaches neither ceiling, `exp` is work too, and the (H, T, S) matrix crosses memory in nearly
# *every line* of your function, not four times. (Count them: about 14.) *Fused* kernels, in lessons 03 and 08, exist to cut exactly this.
#
# **Explain in two sentences**: you generate 100 tokens after a prompt of 400. How much of the work is repeated?
#
# <details><summary>Ours</summary>
#
# For the 100th token the model reads 499 tokens, of which it had read 498 a moment ago with the very same result: for all but the
# newest token, keys and values have not changed. So nearly everything is repeated, and lesson 02 keeps it instead.
# </details>
#
# ## 7 · And with 128k tokens?
#
# The sweep that returns in every lesson. A larger model now, Llama-3.1-8B in bfloat16, and the arithmetic and memory of one
# NVIDIA H200 from its data sheet (989 TFLOP/s, 4.8 TB/s, 141 GB). No machine reaches its data sheet: these times are the least
# possible.

# %%
# NBVAL_CHECK_OUTPUT
llama = CONFIGS["llama-3.1-8b"]
print("context   work for one token   least time   scores of one layer")
for length in (1024, 4096, 16384, 32768, 65536, 131072):
    flops, _ = forward_cost(llama, length, bytes_per_element=2)
    scores = 2 * llama.num_heads * length * length
    print(
        f"{length // 1024:6}k   {flops / 1e12:12,.0f} TFLOP   {flops / 989e12:8.2f} s"
        f"   {scores / 1e9:16,.1f} GB"
    )

# %% [markdown]
# So today's answer to the running question: **with naive attention, a 128k-token request does not run at all.** The scores of a
# single layer would fill eight H200s, and if they did not, each token would still take eleven seconds of a perfect machine.
# The first wall falls in lesson 03 (never write the matrix down), the second in lesson 02 (never compute a token twice).
#
# ## Incident: now and then, nothing
#
# A true story, re-created in our own code. An engine answers thousands of requests. Now and then one of them dies in the sampler:
# *probability tensor contains either inf, nan or element < 0*. The same prompt works when it is sent again. Nothing is wrong with the
# prompt, nor with the model.
#
# The engine keeps keys and values in memory that is used again and again. A sequence rarely fills its piece: the rest holds
# whatever was there before, and is hidden by the mask, with a score of −∞.


# %%
def reported(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """One new token, q: (1, 1, D), looks at the first `length` rows of k, v: (rows, 1, D)."""
    scores = attention_scores(q, k, scale=1.0)
    hidden = torch.arange(k.shape[0]) >= length
    weights = stable_softmax(scores.masked_fill(hidden, float("-inf")))
    return (weights @ v.transpose(0, 1)).transpose(0, 1)


def symptom(attend) -> str:
    """Five tokens in memory that had another owner: does the answer consist of numbers?"""
    torch.manual_seed(0)
    memory = torch.full((2, 8, 1, 4), float("nan"))  # what the last owner left: here, the worst
    memory[:, :5] = torch.randn(2, 5, 1, 4)
    try:
        out = attend(torch.randn(1, 1, 4), *memory, length=5)
    except NotImplementedError:
        return "not written yet"
    return "numbers" if bool(out.isfinite().all()) else f"broken: {out.flatten().tolist()}"


# %%
# NBVAL_CHECK_OUTPUT
print("the reported code gives", symptom(reported))

# %% [markdown]
# The mask is right, and your softmax gives the hidden rows a weight of exactly 0: `lab.check` made sure of that. **Find the cause**, then
# write a version that passes. Print `weights` inside `reported` if you are stuck.


# %%
def repaired(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """The same as `reported`, whatever lies behind the first `length` rows."""
    ### BEGIN SOLUTION keep what is hidden out of the second product too
    return naive_attention(q, k[:length], v[:length], scale=1.0)
    ### END SOLUTION


# %%
# NBVAL_CHECK_OUTPUT
print("the repaired code gives", symptom(repaired))

# %% [markdown]
# <details><summary>The cause</summary>
#
# A weight of 0 does not mean that a value is ignored: it is *multiplied* by 0, and 0 · NaN = NaN. Hiding a score hides the
# **key**; the **value** still goes through the second product. So the rows must be left out, or their values set to 0.
#
# It was found in vLLM in 2023 (issue [641](https://github.com/vllm-project/vllm/issues/641), repaired in
# [936](https://github.com/vllm-project/vllm/pull/936)), and again in FlashAttention
# ([2374](https://github.com/Dao-AILab/flash-attention/issues/2374)) and TensorRT-LLM
# ([18925](https://github.com/NVIDIA/TensorRT-LLM/pull/18925)) in 2026. In this library every kernel is tested on a cache filled with NaN.
# </details>
#
# ## Three questions
#
# <details><summary>1. In a decode step (T = 1) the mask hides nothing. Why do engines still get it wrong?</summary>
#
# Because the same code serves chunks of a prompt (T > 1, S > T), where it must be aligned at the end. A decode step cannot
# show the mistake, so text looks right for a while: compare the *logits of the last chunk*, not the text.
# </details>
#
# <details><summary>2. The prompt gets twice as long. Which parts of the cost of one token double, which grow fourfold, which stay?</summary>
#
# The products with the weights double. The attention products and the score matrix grow fourfold. Reading the weights stays.
# </details>
#
# <details><summary>3. GQA makes K smaller than H. Which of your numbers gets smaller: FLOPs, score matrix, stored keys and values?</summary>
#
# Only the stored keys and values, by H / K (three for smollm2-135m). Each query head still computes its own scores.
# That is worth it because storing and reading them is what limits an engine, as lesson 02 shows.
# </details>
#
# ## What real engines do differently
#
# * **They never write the (H, T, S) matrix.** FlashAttention (Dao et al. 2022) works in tiles that stay on the chip; PyTorch's
#   `scaled_dot_product_attention`, FlashInfer, vLLM, SGLang, TensorRT-LLM and llama.cpp all have such a kernel.
# * **They never compute a token twice**: a [KV cache](../GLOSSARY.md#kv-cache), paged in most engines (vLLM's PagedAttention, Kwon et al. 2023).
# * **They skip hidden tiles**: where a whole tile lies above the diagonal, nothing is computed. That halves the FLOPs of a long prompt.
# * **They fold the scale into the exponent** and use $2^x$ instead of $e^x$, which is what the hardware has.
# * **They do not copy KV heads** for GQA as `repeat_interleave` does: the query heads of a group share one read.
#
# Next, in lesson 02: the KV cache, which keeps what does not change.

# %%
lab.progress()
