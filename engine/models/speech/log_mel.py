"""The input of Whisper: the logarithm of the energy in bands of pitch, 100 frames a second, as its processor makes it.

The method is that of WhisperFeatureExtractor (transformers), over the whole sound, computed in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

PIECE_FRAMES = 6_000
"""A minute: what is computed at once, so that hours need little memory."""
LEAST = 1e-10
RANGE = 8.0
"""Powers of ten below the loudest frame; what is quieter counts as that."""


class LogMel:
    """The maker of inputs for one model."""

    def __init__(self, filters: torch.Tensor, n_fft: int, hop: int) -> None:
        """`filters`: (bins of the spectrum, bands)."""
        self._filters = filters.float()
        self._n_fft = n_fft
        self._hop = hop
        self._window = torch.hann_window(n_fft)

    def num_frames(self, num_samples: int) -> int:
        return num_samples // self._hop

    def pieces(self, samples: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield log10 of the energies (bands, frames), piece by piece. `samples`: float32, at least `n_fft`."""
        half = self._n_fft // 2
        total = self.num_frames(len(samples))
        samples = functional.pad(samples[None], (half, half), mode="reflect")[0]
        for start in range(0, total, PIECE_FRAMES):
            stop = min(total, start + PIECE_FRAMES)
            part = samples[start * self._hop : (stop - 1) * self._hop + self._n_fft]
            spectrum = torch.stft(part, self._n_fft, self._hop, window=self._window, center=False, return_complex=True)
            energies = self._filters.T @ spectrum.abs().square()
            yield energies.clamp(min=LEAST).log10()

    @staticmethod
    def joined(pieces: list[torch.Tensor]) -> torch.Tensor:
        """Return the input of the encoder for all the sound (bands, frames)."""
        whole = torch.cat(pieces, dim=1)
        return whole.clamp_(min=whole.max() - RANGE).add_(4.0).div_(4.0)
