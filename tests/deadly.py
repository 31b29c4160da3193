"""A method whose process is killed, in a module that other processes can import."""

from __future__ import annotations

import os
import signal

import multum


class Deadly(multum.Single):
    def birth(self, *args: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
