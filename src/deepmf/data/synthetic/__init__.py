"""Generated matrices whose truth is known."""

from deepmf.data.synthetic.generator import Generated, checkerboard, generate, stream

__all__ = ["Generated", "checkerboard", "generate", "stream"]
