"""Whole models of torchvision, timm and transformers, with random weights: imported, judged, compiled and timed.

`python -m benchmarks.models` is the command; `architectures` makes the models, `forms` brings one into a format that
users bring (a torch program, an ONNX file, either of them quantised), `worker` measures one of them in a process of its
own, and `report` shows the table.
"""
