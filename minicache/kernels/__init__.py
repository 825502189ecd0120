"""Attention over pages in Triton: plan, launch and plain reference, one stem each.

Importing this package loads neither torch nor Triton; its modules do. A call is three kernels:

* `work`    cuts the key ranges of a step into work items, once a step, on the device;
* `attend`  one program an item and KV head: online softmax over pages;
* `combine` merges the partial results of those rows that were cut.

`flash_decode` and `chunk_prefill` choose the launch shape. A decode is a chunk of one token.
"""
