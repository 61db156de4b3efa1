"""The agent: one per node. It tells the allocator what its GPUs look like and makes them look as the allocator wants.

`plan` decides (pure), `driver/` touches the GPU, `loop` leads the conversation, `app` is the command.
"""
