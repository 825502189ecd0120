from mutants.shape import mutant

MUTANTS = (
    mutant("counts the query heads", "config.num_kv_heads", "config.num_heads"),
    mutant(
        "takes head_dim to be hidden_size / num_heads",
        "config.head_dim",
        "config.hidden_size // config.num_heads",
    ),
    mutant("knows only bfloat16", "numbers * bytes_per_element", "numbers * 2"),
    mutant(
        "takes the 2 of key and value for the bytes",
        "2 * config.num_layers",
        "bytes_per_element * config.num_layers",
    ),
)
DIFFERENT = """
def kv_bytes_per_token(config, bytes_per_element=2):
    total = 0
    for layer in range(config.num_layers):
        for vector in ("key", "value"):
            total += sum(config.head_dim for head in range(config.num_kv_heads))
    return bytes_per_element * total
"""
