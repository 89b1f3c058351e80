"""A policy as an ONNX file, for programs without Python: the graph, its check, and the file."""
