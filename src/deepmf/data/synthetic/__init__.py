"""Generated matrices with a known ground truth."""

from deepmf.data.synthetic.generator import Generated, checkerboard, generate, stream

__all__ = ["Generated", "checkerboard", "generate", "stream"]
