# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Weights are found by path without a network, fetched completely, or refused."""

import hashlib
import http.server
import os
import sys
import threading
import types
from pathlib import Path

import pytest

from vjepa_ros import cli
from vjepa_ros.model.checkpoint import download as fetching
from vjepa_ros.model.checkpoint.download import download, located
from vjepa_ros.model.checkpoint.load import WeightsError, load_encoder

pytestmark = pytest.mark.usefixtures('one_thread')

CONTENT = bytes(range(256)) * 20000
NAME = 'facebook/vjepa2-vitl-fpc64-256'


class Server(http.server.BaseHTTPRequestHandler):
    """Serve CONTENT everywhere but at /none; end early while `cut` is set."""

    protocol_version = 'HTTP/1.1'
    cut, ranges, tag = 0, True, '"1"'
    asked: list[str] = []

    def do_HEAD(self):
        self.start(200 if 'none' not in self.path else 404, len(CONTENT))

    def do_GET(self):
        wanted = self.headers.get('Range', '')
        type(self).asked.append(wanted)
        first = int(wanted[6:-1]) if wanted and self.ranges else 0
        rest = CONTENT[first:]
        self.start(206 if first else 200, len(rest))
        self.wfile.write(rest[:self.cut or None])
        self.close_connection = True

    def start(self, status, size):
        self.send_response(status)
        self.send_header('Content-Length', str(size))
        self.send_header('ETag', self.tag)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server on this machine; the attributes of `Server` steer it."""
    for name, value in (('cut', 0), ('ranges', True), ('tag', '"1"'), ('asked', [])):
        monkeypatch.setattr(Server, name, value)
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f'http://127.0.0.1:{running.server_port}/'
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(('later', 'goes_on'), [
    ({}, True), ({'ranges': False}, True), ({'tag': '"2"'}, False)],
    ids=['ranges', 'no ranges', 'changed'])
def test_an_interrupted_download_goes_on_where_it_stopped_if_the_file_is_the_same(
        server, tmp_path, later, goes_on, monkeypatch):
    monkeypatch.setattr(Server, 'cut', 3_000_000)
    with pytest.raises(WeightsError, match='is kept: run the same command again'):
        download(server + 'a.pt', tmp_path, lambda *now: None)
    there = next(tmp_path.iterdir()).stat().st_size
    for name, value in {'cut': 0, **later}.items():
        monkeypatch.setattr(Server, name, value)
    assert download(server + 'a.pt', tmp_path, lambda *now: None).read_bytes() == CONTENT
    assert Server.asked == ['', f'bytes={there}-' if goes_on else '']


def test_what_cannot_be_fetched_is_refused_and_leaves_nothing(server, tmp_path, monkeypatch):
    with pytest.raises(WeightsError, match='answers 404'):
        download(server + 'none.pt', tmp_path, lambda *now: None)
    full = types.SimpleNamespace(free=9)
    monkeypatch.setattr(fetching.shutil, 'disk_usage', lambda folder: full)
    with pytest.raises(WeightsError, match='choose another folder'):
        download(server + 'a.pt', tmp_path, lambda *now: None)
    with pytest.raises(WeightsError, match='refused'):
        download('http://127.0.0.1:1/a.pt', tmp_path, lambda *now: None)
    assert os.listdir(tmp_path) == []


def test_a_file_is_fetched_completely_with_its_checksum(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr('vjepa_ros.cli.weights.BASE_URL', server)
    assert cli.main(['download', 'vitl', '--folder', str(tmp_path / 'new')]) == 0
    assert (tmp_path / 'new' / 'vitl.pt').read_bytes() == CONTENT
    assert hashlib.sha256(CONTENT).hexdigest() in capsys.readouterr().out


def snapshot_download(name, allow_patterns, local_files_only=False):
    """Stands for huggingface_hub: an empty cache, and a network that does not work."""
    if local_files_only:
        raise FileNotFoundError('not in the cache')
    raise RuntimeError('no route to host')


@pytest.mark.parametrize(('cause', 'problem'), [
    ('network', r"weights 'facebook/.*no route to host.*`weights`"),
    ('offline', 'HF_HUB_OFFLINE forbids'),
    ('library', 'no file or folder here.*pip install huggingface_hub')])
def test_a_name_that_can_not_be_fetched_is_an_error_and_never_random_weights(
        tmp_path, monkeypatch, cause, problem):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('HF_HUB_OFFLINE', '1' if cause == 'offline' else '0')
    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None if cause == 'library' else hub)
    with pytest.raises(WeightsError, match=problem):
        load_encoder('tiny', weights=NAME, allow_random_weights=True)
    (tmp_path / 'owner' / 'name').mkdir(parents=True)
    for path in ('owner/name', 'owner/none.pt', './owner/none', 'a/b/c', str(tmp_path / 'none')):
        assert located(path, 'weights') == Path(path)
