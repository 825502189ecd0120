from mutants.shape import mutant

MUTANTS = (
    mutant(
        "leaves out hidden pairs",
        "pairs = num_heads * num_queries * num_keys",
        "hidden = num_queries * (num_queries - 1) // 2\n"
        "    pairs = num_heads * (num_queries * num_keys - hidden)",
    ),
    mutant(
        "takes the whole prompt for granted: T = S",
        "num_heads * num_queries * num_keys",
        "num_heads * num_queries * num_queries",
    ),
    mutant(
        "reads keys and values for every query head",
        "num_keys * num_kv_heads",
        "num_keys * num_heads",
    ),
    mutant(
        "has one score matrix for each KV head",
        "keys_and_values + 4 * pairs",
        "keys_and_values + 4 * num_kv_heads * num_queries * num_keys",
    ),
    mutant("knows only bfloat16", "numbers * bytes_per_element", "numbers * 2"),
)
DIFFERENT = """
def attention_cost(num_queries, num_keys, num_heads, num_kv_heads, head_dim, bytes_per_element=4):
    flops = bytes_moved = 0
    for head in range(num_heads):
        flops += 4 * num_queries * num_keys * head_dim
        bytes_moved += 4 * num_queries * num_keys * bytes_per_element
        bytes_moved += 2 * num_queries * head_dim * bytes_per_element
    for kv_head in range(num_kv_heads):
        bytes_moved += 2 * num_keys * head_dim * bytes_per_element
    return flops, bytes_moved
"""
