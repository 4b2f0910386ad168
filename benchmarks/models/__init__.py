"""Whole models of torchvision, timm and transformers, with random weights: imported, compiled, verified and timed.

`python -m benchmarks.models` is the command. `architectures` makes the models, `forms` converts one into a format that
users have (a torch program, an ONNX file, either of them quantised), `worker` measures one in a process of its own, and
`report` shows the table.
"""
