# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show cameras, overlays, maps, looming, levels and states in Rerun, also in a browser."""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from vjepa_ros.cli.console import (
    add_model,
    add_source,
    end_like_ctrl_c,
    print_error,
    ros_problem,
    whole,
)
from vjepa_ros.lab.report.live_view import Status
from vjepa_ros.ros import read
from vjepa_ros.sources import PlayOptions, SUPPORTED, open_source
from vjepa_ros.sources.bag import Bag, is_bag
from vjepa_ros.viewer.rerun_log import RerunLog, Topics, holds_outputs, published

WEB_PORT, DATA_PORT = 9090, 9876
MEMORY = '1GiB'          # that the server keeps for browsers that come later
LOOK_S = 0.5             # between two looks at the list of topics
SILENT_S = 10.0          # after which it says that nobody publishes
PERCEIVING = ('topic', 'rate', 'clip_fps', 'model_size', 'weights', 'device')     # options
REMEDY = ("Rerun is missing: pip install rerun-sdk (the extra 'view' of this package), on this "
          'or on any other computer of the ROS domain')


def address() -> str:
    """Return the address of this computer in its network, or its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(('192.0.2.1', 9))      # of documentation: no packet is sent
            return probe.getsockname()[0]
        except OSError:
            return socket.gethostname()


def check_ports(args: argparse.Namespace) -> None:
    """Raise ValueError, naming the option, where a port is taken."""
    for option, port in (('--port', args.port), ('--data-port', args.data_port)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(('', port))
            except OSError as error:
                raise ValueError(f'{option} {port} cannot be opened ({error.strerror}): another '
                                 'viewer may run; choose another port') from error


@contextmanager
def recording(args: argparse.Namespace, console: Console, live: bool) -> Iterator[RerunLog]:
    """Yield a log into a file, or into the web viewer, which is served until the block ends."""
    rr: Any = import_module('rerun')
    stream: Any = rr.RecordingStream('vjepa_ros')
    try:
        if args.save:
            stream.save(args.save)
        else:
            check_ports(args)
            # The page may come from any name of this computer, but only from its own port.
            stream.serve_grpc(grpc_port=args.data_port, server_memory_limit=MEMORY,
                              cors_allow_origin=[f'http://*:{args.port}'])
            rr.serve_web_viewer(web_port=args.port, open_browser=False)
            for host, where in (('localhost', 'here'), (address(), 'elsewhere')):
                data = quote(f'rerun+http://{host}:{args.data_port}/proxy', safe='')
                console.print(f'in a browser {where}: http://{host}:{args.port}/?url={data}',
                              highlight=False, soft_wrap=True)
        yield RerunLog(stream, live)
    finally:
        stream.flush()
        stream.disconnect()


def perceive(args: argparse.Namespace, console: Console) -> int:
    """Run the perception on a source without ROS and show it."""
    from vjepa_ros.cli.watch import Watch, detector_of, groups

    camera = 'camera'
    with open_source(args.source, PlayOptions(rate=args.rate, topic=args.topic)) as source, \
            recording(args, console, live=not args.save) as log, \
            detector_of(source, args) as detector:
        status = Status('vjepa-ros view', source.name)
        run = Watch(detector, source, status)
        console.print(f'{source.name}: {status.model} on {status.device}', highlight=False,
                      soft_wrap=True)
        for frames in groups(source, source.live or not args.save, args.max_seconds):
            result, overlay = run.take(frames)
            log.at(frames[-1].stamp_ns)
            log.picture(camera, frames[-1].rgb)
            log.picture(camera, overlay[..., ::-1], 'overlay')
            if result is not None:
                log.result(camera, result, detector.track.optics())
                log.stages(camera, {**result.assessment.timings,
                                    'latency': status.results[-1].latency_ms})
        return stay(args, console)


def replay(args: argparse.Namespace, console: Console, bag: Bag) -> int:
    """Show what nodes said when a bag was recorded."""
    parser = make_parser()
    idle = [f'--{name.replace("_", "-")}' for name in PERCEIVING
            if getattr(args, name) != parser.get_default(name)]
    if idle:
        parser.error(f"{', '.join(idle)} has no effect with '{args.source}', which holds outputs "
                     'of nodes; add --perceive')
    with recording(args, console, live=False) as log:
        topics = Topics(log)
        topics.what = published(bag.types)
        console.print(f"'{args.source}': as it was recorded", highlight=False, soft_wrap=True)
        begin = 0
        for topic, msg in bag.read(topics.what):
            # Plain numbers have no stamp, and one of 0 was never set.
            if hasattr(msg, 'header') and (stamp_ns := read.stamp_ns(msg)):
                begin = begin or stamp_ns
                if args.max_seconds and stamp_ns - begin > args.max_seconds * 1e9:
                    break
            topics.take(topic, msg)
        tell(topics, console)
        return stay(args, console)


def listen(args: argparse.Namespace, console: Console) -> int:
    """Show what nodes of the ROS domain say, until Ctrl-C."""
    from vjepa_ros.ros.listener import Listener

    with Listener('vjepa_ros_view') as ros, recording(args, console, live=True) as log:
        topics, begin, said = Topics(log), time.monotonic(), False
        while not args.max_seconds or time.monotonic() - begin < args.max_seconds:
            there = ros.topics()
            topics.what = published(there, topics.what)
            for topic in topics.what.keys() & there.keys():
                ros.subscribe(topic, there[topic], topics.take)
            if not said and not topics.what and time.monotonic() - begin > SILENT_S:
                said = True
                print_error(f'vjepa-ros view: no node of this package publishes in ROS domain '
                            f'{ros.domain_id} yet; waiting', console)
            ros.spin(LOOK_S)
            tell(topics, console)
        return 0


def tell(topics: Topics, console: Console) -> None:
    """Print what could not be shown."""
    if topics.problem:
        print_error(f'vjepa-ros view: {topics.problem}', console)
        topics.problem = ''


def stay(args: argparse.Namespace, console: Console) -> int:
    """Serve until Ctrl-C what was shown; return at once when it was saved."""
    if args.save:
        console.print(f'wrote {args.save}', highlight=False, soft_wrap=True)
        return 0
    console.print('the source has ended; Ctrl-C ends the viewer')
    while True:
        time.sleep(1.0)


def run(args: argparse.Namespace, console: Console) -> int:
    """Choose where the pictures come from: ROS, what a bag recorded, or the perception."""
    if not args.source:
        problem = ros_problem()
        return print_error(f'vjepa-ros view: {problem}; a video or bag needs no ROS: vjepa-ros '
                           'view SOURCE', console) if problem else listen(args, console)
    path = Path(args.source).expanduser()
    if not args.perceive and is_bag(path):
        with Bag(path) as bag:
            if holds_outputs(bag.types):
                return replay(args, console, bag)
    return perceive(args, console)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros view', description=__doc__)
    parser.add_argument('source', metavar='SOURCE', nargs='?', default='',
                        help=f'nothing: the running nodes; or {SUPPORTED}. A bag with outputs of '
                        'the nodes is shown as it was recorded')
    parser.add_argument('--perceive', action='store_true', help='run the perception on the '
                        'pictures of a bag also where it holds outputs of the nodes')
    parser.add_argument('--save', type=Path, metavar='FILE.rrd', help='write a recording for '
                        '`rerun FILE.rrd` instead of serving the web viewer')
    parser.add_argument('--port', type=whole(1024, 65535), default=WEB_PORT, metavar='N',
                        help='port of the web viewer (default: %(default)s)')
    parser.add_argument('--data-port', type=whole(1024, 65535), default=DATA_PORT, metavar='N',
                        help='port that the viewer reads from (default: %(default)s)')
    add_source(parser)
    add_model(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 at the end of a saved source, and after Ctrl-C."""
    args, console = make_parser().parse_args(argv), Console()
    end_like_ctrl_c()
    try:
        return run(args, console)
    except ModuleNotFoundError as error:
        if error.name != 'rerun':
            raise
        return print_error(f'vjepa-ros view: {REMEDY}', console)
    except (ValueError, OSError, RuntimeError) as error:
        return print_error(f'vjepa-ros view: {error}', console, args)
    except KeyboardInterrupt:
        return 0
