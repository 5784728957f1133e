# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A headless Chromium that shows a page, spoken to through its pipe (DevTools protocol)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np

CHROMIUM = next((found for name in ('chromium', 'chromium-browser', 'google-chrome')
                 if (found := shutil.which(name))), '')
FLAGS = ('--headless=new', '--no-sandbox', '--remote-debugging-pipe', '--window-size=1200,900',
         '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--ignore-gpu-blocklist',
         '--disable-background-networking', '--no-first-run')
# Keeps errors for the test; what pages say for fun takes long to write. Only the host of the page
# answers: a viewer asks others for examples and news, which are not there on every machine.
LISTEN = """window.said = [];
const ask = window.fetch;
window.fetch = (what, ...rest) => new URL(what.url || what, location).hostname ===
    location.hostname ? ask(what, ...rest) : new Promise(() => {});
console.debug = console.log = console.info = () => {};
console.error = (...words) => window.said.push(words.join(' '));
addEventListener('error', e => window.said.push('uncaught: ' + e.message));
addEventListener('unhandledrejection', e => window.said.push('rejected: ' + e.reason));"""


class Page:
    """A tab.

    Parameters
    ----------
    send, receive
        Descriptors of the pipe.
    """

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive, self._rest, self._id = send, receive, b'', 0
        self._session: dict[str, str] = {}
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self._session = {'sessionId': self.call('Target.attachToTarget', targetId=target,
                                                flatten=True)['sessionId']}
        self.call('Page.enable')
        self.call('Page.addScriptToEvaluateOnNewDocument', source=LISTEN)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command."""
        self._id += 1
        os.write(self._send, json.dumps({'id': self._id, 'method': method, 'params': params,
                                         **self._session}).encode() + b'\0')
        while True:
            while b'\0' not in self._rest:
                got = os.read(self._receive, 1 << 20)
                assert got, 'chromium has ended'
                self._rest += got
            one, _, self._rest = self._rest.partition(b'\0')
            message = json.loads(one)
            if message.get('id') == self._id:
                return message.get('result', {})

    def errors(self) -> list[str]:
        """What the page has written as errors so far."""
        return self.call('Runtime.evaluate', expression='window.said',
                         returnByValue=True)['result']['value']

    def picture(self) -> np.ndarray:
        """What is seen (H, W, 3) BGR; black between two pages."""
        data = base64.b64decode(self.call('Page.captureScreenshot').get('data', ''))
        if not data:
            return np.zeros((90, 120, 3), np.uint8)
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)

    def wait_for(self, seen: Any, timeout_s: float = 240.0) -> np.ndarray:
        """Wait until a picture passes a test; the last one."""
        end = time.monotonic() + timeout_s
        while not seen(picture := self.picture()) and time.monotonic() < end:
            time.sleep(1.0)
        return picture


@contextmanager
def browsing(url: str, profile: Path) -> Iterator[Page]:
    """A page of a browser of its own, with a folder for its files."""
    (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_there, write_there)]
    with subprocess.Popen(
            [CHROMIUM, *FLAGS, f'--user-data-dir={profile}'], pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for end in (*ends, read_there, write_there):
            os.close(end)
        try:
            page = Page(write_here, read_here)
            page.call('Page.navigate', url=url)
            yield page
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10.0)
            process.kill()
            os.close(write_here)
            os.close(read_here)
