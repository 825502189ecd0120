# %% [markdown]
# # 00 · Start here
#
# **After this lesson you can** run the finished engine, point at the moment in which one person's long document freezes
# everybody else, and pass your first check.
#
# | | |
# |---|---|
# | Time | 20 minutes, one exercise |
# | You need | Python, and to be able to read PyTorch. No GPU |
# | Not covered | *how* any of it works: that is the rest of the course |
#
# A server for language models shares one processor among many people. This course builds such a server, an *inference engine*,
# piece by piece, and follows one question all the way: ***what happens to my 128k-token request, and to the people who are
# already talking?***
#
# Linked words are explained in the [glossary](../GLOSSARY.md).

# %%
from itertools import pairwise

from minicache import lab
from minicache.model_config import CONFIGS
from minicache.request import SamplingParams
from minicache.viz.timeline_widget import TimelineWidget

lab.environment()

# %% [markdown]
# ## 1 · Talk to it
#
# The finished engine, and a real model: SmolLM2-135M-Instruct, small enough for a laptop. From here on `lab.engine()` is a black
# box that you will open.

# %%
with lab.engine() as llm:
    answer = llm.chat(
        [{"role": "user", "content": "What is a whale? One sentence."}],
        SamplingParams(max_tokens=40),
    )
print(answer.text)
print(f"\n{len(answer.token_ids)} tokens, ended by: {answer.finish_reason.value}")

# %% [markdown]
# The engine works in **tokens**: pieces of words, each with a number. It works in **steps**. A step computes some tokens of some
# requests: to read a prompt ([prefill](../GLOSSARY.md#prefill)), or to write the next token of an answer
# ([decode](../GLOSSARY.md#decode)).
#
# ## 2 · Three people chat, a fourth pastes a long document
#
# Ada, Ben and Cleo are in the middle of an answer when Dana pastes 1,500 tokens of source code. These are all the lines it takes to
# serve them. The list `heard[name]` keeps the time of each token that a person sees.

# %%
CHATS = {
    "Ada": "Tell me a long story about a lighthouse keeper who makes friends with a whale.",
    "Ben": "Explain step by step how to bake a loaf of bread.",
    "Cleo": "I have one week in Japan. Describe what I should see on each day.",
}


DOCUMENT_TOKENS = 1500


def serve(llm):
    """Three chats, and after 24 steps a document. Returns all tokens' times, and the trace."""
    engine, tokenizer = llm.engine, llm.tokenizer
    document = lab.document(tokenizer, DOCUMENT_TOKENS) + "\n\nWhat is this document about?"

    def ask(name: str, text: str, tokens: int) -> None:
        prompt = tokenizer.chat([{"role": "user", "content": text}])
        engine.submit(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True), id=name)

    for name, text in CHATS.items():
        ask(name, text, tokens=48)
    heard = {name: [] for name in [*CHATS, "Dana"]}
    for step in range(1, 1000):
        for delta in engine.step():
            heard[delta.id] += [engine.clock()] * len(delta.token_ids)
        if step == 24:
            ask("Dana", document, tokens=16)
        if not engine.has_work:
            return heard, engine.trace


def worst_gap(heard) -> float:
    """The longest time, in seconds, that a chat waited between two of its tokens."""
    times = [heard[name] for name in CHATS]
    return max(later - earlier for t in times for earlier, later in pairwise(t))


# %% [markdown]
# A token of these chats takes a fraction of a second. **Predict**: how long does the longest silence get, when the engine reads Dana's
# whole document in one step? Write your number in place of the dots. It is kept, and never graded.

# %%
lab.predict(
    "freeze",
    guess=1.0,
    unit="s",
    question="The document is read in one step: how long is the longest silence of a chat?",
)

# %%
people = {"num_pages": 512, "max_num_seqs": 4, "prefix_caching": False}
with lab.engine(chunked_prefill=False, **people) as llm:
    heard_whole, whole = serve(llm)

lab.reveal("freeze", measured=worst_gap(heard_whole))

# %% [markdown]
# **Look.** A row for each person, time to the right. Orange: a token came out. Blue: a prompt is being read. Empty: waiting.

# %%
TimelineWidget(whole, noun="chat")

# %% [markdown]
# Nobody did anything wrong, and still everybody waits: the step that reads the document holds the processor, and a step cannot be
# interrupted. This is [head-of-line blocking](../GLOSSARY.md#head-of-line-blocking), the freeze that people of real services complain about.
#
# ## 3 · The same, in chunks
#
# Nothing forces an engine to read a prompt in one step. With [chunked prefill](../GLOSSARY.md#chunked-prefill) a step takes at most,
# say, 256 tokens: first one for each chat, then as much of the document as fits.
#
# **Predict** again. The formula's answer comes from the run above: the long silence divided by the document's
# 1,500 tokens, times 256. It leaves out that every step also reads all weights of the model, however few tokens it has.

# %%
lab.predict(
    "chunked",
    guess=0.5,
    unit="s",
    question="The document is read in chunks of 256 tokens: how long is the longest silence?",
)

# %%
BUDGET = 256
with lab.engine(max_num_batched_tokens=BUDGET, **people) as llm:
    heard_chunked, chunked = serve(llm)

per_token = worst_gap(heard_whole) / DOCUMENT_TOKENS
lab.reveal("chunked", measured=worst_gap(heard_chunked), formula=per_token * BUDGET)

# %% [markdown]
# **Look.** The first run again, and below it the second, on the same time axis. Choose a step, or press *Step*, to see what it held; *zoom* looks closer.

# %%
TimelineWidget(
    {"whole prompt": whole, "chunks of 256": chunked}, baseline="whole prompt", noun="chat"
)

# %% [markdown]
# **Explain in two sentences**, aloud or on paper: why do the chats no longer freeze, and who pays for it?
#
# <details><summary>Ours</summary>
#
# Each step now holds one token of every chat *and* a piece of the document, so a chat waits for one short step at most. Dana pays: her
# document is read in more steps, each of which reads all weights again and also serves the others, so her first word comes later. The picture says how much.
# </details>
#
# ## 4 · What you will build
#
# | lesson | you write | track |
# |---|---|---|
# | 01 Naive attention | the formula, for the real model | both |
# | 02 The KV cache | remembering what does not change | both |
# | 03 Online softmax | attention in tiles, and how parts merge | kernels |
# | 04 Paging | memory in pages: shared, counted, freed | scheduling |
# | 05 Continuous batching | the step: who runs now, who waits, who gives way | scheduling |
# | 06 Chunked prefill | what you just saw | scheduling |
# | 07 Triton in one sitting | programs, blocks, masks on a GPU | kernels |
# | 08 FlashDecoding | a kernel that keeps a whole GPU busy for one long request | kernels |
# | 09 The mini engine | all parts together, on the real model | kernels |
# | 10 Judge it like a production team | how to tell whether it is any good | scheduling |
#
# What you write is kept in a library of your own, `mycache/`, a plain Python file for each exercise. At the end it serves the real model.
#
# ## 5 · How a check works: what does a token weigh?
#
# While a request runs, the engine keeps two vectors for each of its tokens, in every layer and for every [KV head](../GLOSSARY.md#kv-head):
# a **key** and a **value** of `head_dim` numbers each. This is the [KV cache](../GLOSSARY.md#kv-cache), and it is what long requests fill memory with.
#
# ### Exercise · `kv_bytes_per_token` · 4 minutes · difficulty 1 of 5
#
# Replace the `raise` by your code, run the cell, then run the check below it. The cell becomes a file of your library, so it must hold everything it
# needs. Try a wrong answer too: the check shows the smallest case that fails.

# %%
from minicache.model_config import ModelConfig


def kv_bytes_per_token(config: ModelConfig, bytes_per_element: int = 2) -> int:
    """Bytes that the KV cache takes for one token, in all layers together.

    config: has num_layers, num_heads, num_kv_heads, head_dim, hidden_size (not all of them matter).
    bytes_per_element: 2 for bfloat16, 4 for float32, 1 for an 8-bit cache.
    A layer keeps one key and one value for each KV head, of head_dim numbers each.
    """
    ### BEGIN SOLUTION five numbers, multiplied
    numbers = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return numbers * bytes_per_element
    ### END SOLUTION


# %% [markdown]
# <details><summary>A hint</summary>
#
# Every layer keeps one key and one value for each KV head, and each of these has `head_dim` numbers.
# </details>

# %%
# NBVAL_CHECK_OUTPUT
kv_bytes_per_token = lab.check(kv_bytes_per_token)

# %% [markdown]
# `lab.check` gave you back the function to go on with: yours if it passed, the library's if not. So a notebook always runs to its end, and you may
# skip an exercise and come back.
#
# **Predict.** One request of 128k tokens to Llama-3.1-8B, in bfloat16: how many GB does its KV cache take?

# %%
lab.predict(
    "128k",
    guess=2,
    unit="GB",
    question="KV cache of one request of 131,072 tokens, Llama-3.1-8B in bfloat16: how many GB?",
)

# %%
# NBVAL_CHECK_OUTPUT
lab.reveal("128k", measured=131072 * kv_bytes_per_token(CONFIGS["llama-3.1-8b"]) / 1e9)

# %% [markdown]
# The sweep that returns in every lesson, from 1k to 128k tokens of [context](../GLOSSARY.md#context):

# %%
# NBVAL_CHECK_OUTPUT
names = ["smollm2-135m", "qwen3-0.6b", "llama-3.1-8b"]
print(f"{'context':>8}" + "".join(f"{name:>18}" for name in names))
for tokens in (1024, 4096, 16384, 32768, 65536, 131072):
    sizes = [tokens * kv_bytes_per_token(CONFIGS[name]) / 1e9 for name in names]
    print(f"{tokens // 1024:>7}k" + "".join(f"{size:>15.2f} GB" for size in sizes))

# %% [markdown]
# Today's answer to the running question: **a 128k-token request freezes the others while it is read, and then sits on more memory than the weights of the
# model themselves** (Llama-3.1-8B has 16 GB of weights; one such request adds 17 GB). The course is about doing something about both.
#
# ## Incident: the answer has holes
#
# Every lesson ends with a true story, re-created in our own code. You see the symptom and look for the cause.
#
# Users of a chat service report small black diamonds, `�`, where an emoji should be. Only while the answer streams in: once it is complete, it looks right.


# %%
def reported(tokenizer, token_ids: list[int]) -> list[str]:
    """What is sent to the user's screen, piece by piece, as the tokens come."""
    return [tokenizer.decode([token]) for token in token_ids]


def symptom(stream) -> str:
    """Stream a short answer, and look at what arrives on the screen."""
    token_ids = llm.tokenizer.encode("The llama 🦙 says: ¡hola! 日本")
    try:
        pieces = stream(llm.tokenizer, token_ids)
    except NotImplementedError:
        return "not written yet"
    whole_answer = llm.tokenizer.decode(token_ids)
    verdict = "as it should be" if "".join(pieces) == whole_answer else f"not {whole_answer!r}"
    return f"{''.join(pieces)!r}, {verdict}"


# %%
# NBVAL_CHECK_OUTPUT
print("the reported code sends", symptom(reported))

# %% [markdown]
# **Find the cause** (print the pieces), then write a version that passes. Whatever was sent cannot be taken back.


# %%
def repaired(tokenizer, token_ids: list[int]) -> list[str]:
    """The same as `reported`, and nothing on the screen is ever wrong."""
    ### BEGIN SOLUTION decode what is not yet sent together, and send it once it is whole
    pieces, sent = [], 0
    for count in range(1, len(token_ids) + 1):
        text = tokenizer.decode(token_ids[:count])
        if not text.endswith("�"):
            pieces.append(text[sent:])
            sent = len(text)
    return pieces
    ### END SOLUTION


# %%
# NBVAL_CHECK_OUTPUT
print("the repaired code sends", symptom(repaired))

# %% [markdown]
# <details><summary>The cause</summary>
#
# A character can take several bytes, and its bytes can lie in several tokens: 🦙 is three tokens here. None of the three is a character, so each,
# decoded alone, becomes the replacement character �. An engine decodes them together and holds text back until it is whole.
#
# It was found in several engines, for example exo (issue [1691](https://github.com/exo-explore/exo/issues/1691)). Ours
# holds text back too, for one more reason: a *stop string* may be half arrived.
# </details>
#
# ## Three questions
#
# <details><summary>1. In the first run, Ada, Ben and Cleo got their tokens fast before and after the freeze. What would the average time between tokens have told you?</summary>
#
# Almost nothing: one long gap among two hundred short ones moves the mean a little and the median not at all. That is why this course always shows the
# *worst gap* of a person beside the averages.
# </details>
#
# <details><summary>2. Why not chunks of 16 tokens, then?</summary>
#
# Every step has to read all weights of the model once, whether it computes 16 tokens or 256. Small chunks pay that price more often, so the document
# takes longer, and with it everybody who waits behind it. Lesson 06 finds the balance.
# </details>
#
# <details><summary>3. smollm2-135m has 9 query heads and 3 KV heads. How many bytes would a token take with 9 KV heads?</summary>
#
# Three times as many: 69,120 instead of 23,040 in bfloat16. Sharing KV heads (grouped-query attention) exists for this reason.
# </details>
#
# ## What real engines do differently
#
# * **vLLM** and **SGLang** read prompts in chunks by default, with budgets of 2,048 to 16,384 tokens: a GPU needs larger pieces than your processor to be busy.
# * **TensorRT-LLM** calls its way of mixing prompts and answers in one step *in-flight batching*; **text-generation-inference** and **llama.cpp** mix, too.
# * Large services go one step further and read prompts on *other machines* than they write answers (*disaggregation*: DistServe, Mooncake, NVIDIA Dynamo).
#
# Next: [01, naive attention](01_naive_attention.ipynb).

# %%
lab.progress()
