# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge what was seen of a ROS graph: each finding with its remedy (needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vjepa_ros.parameter import Param, Schema
from vjepa_ros.ros.common.process import LARGE_IMAGES
from vjepa_ros.ros.parameter_file import read_file

OK, NOTE, WARNING, ERROR = LEVELS = ('ok', 'note', 'warning', 'error')
# What is compared with what nodes do, by the part of a node that reports.
PARAMETERS = {'model': ['use_sim_time', 'max_rate'],
              'guard': ['use_sim_time'], 'planner': ['use_sim_time']}
IMAGE, PICTURES = 'sensor_msgs/msg/Image', ('image_raw', '/compressed')
# Ends of the names of topics that a node can do without.
OPTIONAL = ('camera_info', '/tf', '/tf_static', '/odom', 'odometry', 'goal_pose', '/path')
SLACK = 0.9              # a rate this much below another one is lower
REMEDIES = {             # by the quality flag that a camera shows
    'untrained': 'set weights, or model_size to tiny, whose weights come with the package',
    'low_texture': 'light the scene; clean, focus and unblock the lens',
    'stale': 'synchronise the clocks of camera and node; with a bag play it with --clock and set '
             'use_sim_time; on a slow machine raise max_frame_age or choose a smaller model',
    'slow_camera': 'raise the rate of the camera; for whole clips lower clip_fps',
    'assumed_intrinsics': 'publish a calibrated camera_info beside the image, or set assumed_fov',
    'looming_unknown': 'until the camera moves or sees texture nothing can be measured; look for '
                       'the other flags of this camera',
    'device_fallback': 'install a PyTorch for the device, or set device to cpu; where memory ran '
                       'out, free some or choose a smaller model_size',
    'heads_out_of_range': 'the diagnostics of the camera say why (heads), with the remedy',
    'frozen': 'the driver repeats one picture: restart the camera',
    'not_finite': 'set precision to fp32; where it is, set weights to another file',
}
SHOWN = ('device', 'precision', 'execution', 'streaming', 'weights', 'heads', 'weights_made_for',
         'image_topic', 'transport_reason', 'level', 'flags', 'rate_in_hz', 'rate_out_hz',
         'latency_ms_median')
ASK_AGAIN = 'it starts, hangs or has no time: read its log, and ask again'
STATES = {'unconfigured': 'configure', 'inactive': 'activate'}


@dataclass(frozen=True)
class Finding:
    """A fact, or a problem with its remedy."""

    level: str  # one of `LEVELS`; 'ok' is a fact
    about: str  # device, topic, node or file
    text: str
    remedy: str = ''  # a fact needs none


@dataclass
class Topic:
    """One topic, and what came on it while it was looked at."""

    types: tuple[str, ...]  # names such as 'sensor_msgs/msg/Image'
    # publishers, subscribers: full names of nodes, one for each endpoint
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    # Publisher, subscriber, and the policies on which they do not agree
    mismatches: tuple[tuple[str, str, str], ...] = ()
    sampled: bool = False  # whether this process subscribed to it
    count: int = 0  # messages that came
    rate_hz: float = math.nan
    age_s: float = math.nan  # arrival minus stamp of the newest [s]; NaN without stamp
    unstamped: bool = False  # whether the stamp was 0


@dataclass
class NodeSeen:
    part: str  # what it reports on: 'model', 'guard' or 'planner'
    reads: tuple[str, ...]  # topics that it subscribes to
    parameters: dict[str, Any] | None = None  # its `PARAMETERS`, once it answers


@dataclass
class Graph:
    seconds: float  # how long topics were sampled [s]
    nodes_total: int = 0  # nodes in the graph, those of others included
    # topics, nodes: by their full names
    topics: dict[str, Topic] = field(default_factory=dict)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    # What nodes of this package report (`read.diagnostic`), by node (without '/') and part
    statuses: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    mute: tuple[str, ...] = ()  # nodes with topics of this package that report nothing
    middleware: str = ''  # implementation that this process uses, such as rmw_fastrtps_cpp

    @property
    def read(self) -> set[str]:
        """Topics that nodes of this package read."""
        return {topic for node in self.nodes.values() for topic in node.reads}

    def publishers(self, topic: str) -> tuple[str, ...]:
        return self.topics[topic].publishers if topic in self.topics else ()


def judge(graph: Graph) -> list[Finding]:
    found = [Finding(OK, 'graph', f'{graph.nodes_total} nodes, {len(graph.topics)} topics; '
                     f'looked for {graph.seconds:.1f} s')]
    found += [Finding(
        WARNING, name, 'does not report on /diagnostics', ASK_AGAIN) for name in graph.mute]
    if not graph.nodes and not graph.mute:
        found.append(Finding(
            NOTE, 'graph', 'no node of this package reports', 'start one (ros2 launch vjepa_ros '
            'vjepa.launch.py); if it runs, compare ROS_DOMAIN_ID, RMW_IMPLEMENTATION and '
            'ROS_AUTOMATIC_DISCOVERY_RANGE of both terminals'))
    for name, node in graph.nodes.items():
        found += _node(name, node, graph)
    for name, topic in sorted(graph.topics.items()):
        if topic.sampled or name in graph.read:
            found += _topic(name, topic, graph)
    for (node, part), status in sorted(graph.statuses.items()):
        if f'/{node}' in graph.nodes:
            found += _status(f'{node}: {part}', status)
    return found


# -- nodes ---------------------------------------------------------------------------------

def _node(name: str, node: NodeSeen, graph: Graph) -> Iterator[Finding]:
    state = graph.statuses[name.lstrip('/'), node.part]['values']['state']
    yield Finding(OK, name, f'{node.part}, {state}')
    if state in STATES:
        yield Finding(WARNING, name, f'is {state}: it reads no images',
                      f'ros2 lifecycle set {name} {STATES[state]}, or autostart: true')
    for topic in node.reads:
        if not graph.publishers(topic) and not topic.endswith(OPTIONAL):
            yield _unpublished(name, topic, graph)
    if node.parameters is None:
        yield Finding(WARNING, name, 'does not answer what its parameters are', ASK_AGAIN)
        return
    if node.parameters['use_sim_time'] and not graph.publishers('/clock'):
        yield Finding(ERROR, name, 'use_sim_time is true, but nobody publishes /clock: all frames '
                      'are of unknown age, every level is UNKNOWN', 'play the bag with --clock, '
                      'start the simulator, or set use_sim_time to false')
    for (owner, part), status in graph.statuses.items():
        if f'/{owner}' == name and part.startswith('camera ') and state == 'active':
            yield from _camera(name, part, status, node.parameters['max_rate'], graph)


def _unpublished(name: str, topic: str, graph: Graph) -> Finding:
    if not topic.endswith(PICTURES):
        return Finding(WARNING, name, f'nobody publishes {topic}, which it reads',
                       'start its publisher, or remap the topic')
    images = sorted(other for other, seen in graph.topics.items()
                    if IMAGE in seen.types and seen.publishers and other not in graph.read
                    and not set(seen.publishers) & set(graph.nodes))
    there = f'published and unused: {", ".join(images)}' if images else 'no other images'
    remedy = f'start the camera, or remap: -r {topic}:={images[0]}' if images else (
        'start the camera driver, and look that it uses the same ROS_DOMAIN_ID')
    return Finding(ERROR, name, f'nobody publishes {topic}, which it reads ({there})', remedy)


# -- topics --------------------------------------------------------------------------------

def _topic(name: str, topic: Topic, graph: Graph) -> Iterator[Finding]:
    kinds = ', '.join(topic.types)
    if len(topic.types) > 1:
        yield Finding(ERROR, name, f'has several types: {kinds}; endpoints of different types '
                      'never connect', 'rename the topic of one of them')
    for sender, reader, why in topic.mismatches:
        yield Finding(ERROR, name, f'QoS of {sender} and {reader} do not fit: {why}; no message '
                      'passes', 'change the QoS of the publisher, or set qos_overrides.'
                      f'{name}.subscription.<policy> of {reader} when it starts')
    if not topic.publishers:
        return
    who = ', '.join(topic.publishers)
    if not topic.sampled:
        yield Finding(NOTE, name, f'{kinds} by {who}: not looked at')
    elif not topic.count:
        yield from _silent(name, topic, graph)
    else:
        rate = '' if math.isnan(topic.rate_hz) else f', {topic.rate_hz:.1f} Hz'
        age = '' if math.isnan(topic.age_s) else f', {topic.age_s * 1e3:.0f} ms old'
        yield Finding(OK, name, f'{kinds} by {who}{rate}{age}')
    if topic.unstamped:
        yield Finding(ERROR, name, 'messages have the stamp 0: clips need stamps', 'let the '
                      'driver stamp its images with the time of exposure')
    elif topic.age_s < -0.05 or topic.age_s > 60.0:
        when = 'in the future' if topic.age_s < 0 else f'{topic.age_s:.0f} s ago'
        yield Finding(ERROR, name, f'stamps lie {when} by the clock of this machine',
                      'synchronise the clocks (NTP or PTP); for a bag play it with --clock and '
                      'set use_sim_time')
    if len(topic.publishers) > 1 and IMAGE in topic.types:
        yield Finding(WARNING, name, f'{len(topic.publishers)} publishers ({who}): each image '
                      'ends the clip of the other', 'stop all but one, or remap')


def _silent(name: str, topic: Topic, graph: Graph) -> Iterator[Finding]:
    """Judge a topic on which nothing came; a node of ours may receive it, or another transport."""
    def camera(topic: str) -> str:
        return topic.removesuffix('/compressed').removesuffix('/ffmpeg')

    cameras = [status['values'] for status in graph.statuses.values()]
    read = [values['image_topic'] for values in cameras if values.get('rate_in_hz', 0) > 0
            and camera(values['image_topic']) == camera(name)]
    if name in read:
        yield Finding(NOTE, name, 'the node receives it, the doctor does not: large messages '
                      f'need FASTDDS_BUILTIN_TRANSPORTS="{LARGE_IMAGES}" here', '')
        return
    remedy = 'look at the log of the publisher: it waits for something, or its device is gone'
    if IMAGE in topic.types:
        remedy += (f'; large raw images need FASTDDS_BUILTIN_TRANSPORTS="{LARGE_IMAGES}" in the '
                   'environment of the publisher, or the compressed topic')
    instead = f'; {read[0]} delivers and is read instead' if read else ''
    yield Finding(ERROR if name.endswith(PICTURES) and not read else WARNING, name,
                  f'silent: published by {", ".join(topic.publishers)}, but nothing '
                  f'came in {graph.seconds:.1f} s{instead}', remedy)


# -- what nodes report of themselves ---------------------------------------------------------

def _status(name: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    level, message, values = (status[key] for key in ('level', 'message', 'values'))
    flags = str(values.get('flags', '')).split()
    if level != 'ok':
        remedies = [REMEDIES[flag] for flag in flags if flag in REMEDIES and flag in message]
        if str(values.get('heads', '')).startswith('out of range'):
            remedies.append(values['heads'].rpartition('; ')[2])
        yield Finding(ERROR if level == 'error' else WARNING, name, message,
                      '; '.join(remedies) or 'the findings of its topics and its log say more')
    if 'assumed_intrinsics' in flags:
        yield Finding(WARNING, name, 'no usable camera_info: angles, and what is on course, come '
                      f'from assumed_fov ({values.get("camera_info", "reason unknown")})',
                      REMEDIES['assumed_intrinsics'])
    if message == 'nobody listens':
        yield Finding(NOTE, name, 'assesses nothing: nobody subscribes to its outputs',
                      'subscribe, for example: ros2 topic echo --once the assessment')
    facts = ', '.join(f'{key} {values[key]}' for key in SHOWN if key in values)
    if facts or level == 'ok':
        yield Finding(OK, name, '; '.join(filter(None, (
            message if level == 'ok' else '', facts))))


def _camera(name: str, part: str, status: Mapping[str, Any], max_rate: float, graph: Graph
            ) -> Iterator[Finding]:
    """Judge whether results of a camera come as fast as they may, and who hears them."""
    camera, values = part.removeprefix('camera '), status['values']
    about, topic = f'{name}: {part}', f'{name}/{camera}/assessment'
    came, sent = values['rate_in_hz'], values['rate_out_hz']
    if topic in graph.topics and not graph.topics[topic].subscribers and (
            status['message'] != 'nobody listens'):
        yield Finding(NOTE, about, f'nobody subscribes to {topic}: nothing acts on it',
                      'start a guard or planner, or look at its topic names; '
                      f'vjepa-ros echo {camera}/assessment shows it')
    possible = min(came, max_rate)
    if 0 < sent < SLACK * possible:
        stages = {key.partition('.')[2]: ms for key, ms in values.items()
                  if key.startswith('stage_ms.') and not key.endswith('wait')}
        worst = max(stages, key=lambda stage: stages[stage], default='')
        where = f'; the longest stage is {worst} ({stages[worst]:.0f} ms)' if worst else ''
        yield Finding(WARNING, about, f'{sent:.1f} results per second of {possible:.1f} '
                      f'possible{where}', 'choose a smaller model_size, image_size or '
                      'num_frames, streaming weights, precision auto or a GPU; lower max_rate '
                      'to what the machine can do')


# -- parameter files -------------------------------------------------------------------------

def judge_file(path: Path, schemas: Mapping[str, Schema]) -> list[Finding]:
    """Return what is wrong with a parameter file of any node of this package."""
    def row(name: str) -> Param | None:     # of any node, until it is known which one this is
        return next(filter(None, (schema.row(name) for schema in schemas.values())), None)

    try:
        found = [finding for node, values in read_file(path, row).items()
                 for finding in _block(path, node, values, schemas)]
    except ValueError as error:
        return [Finding(ERROR, path.name, str(error),
                        'correct it: nodes do not start with this file')]
    return found or [Finding(OK, path.name, 'nothing is wrong with it')]


def _block(path: Path, node: str, values: Mapping[str, Any], schemas: Mapping[str, Schema]
           ) -> Iterator[Finding]:
    def score(schema: Schema) -> int:
        return len(set(values) & {row.name for row in schema.rows})

    about, name = f'{path.name}: {node}', node.rpartition('/')[2]
    schema = schemas.get(name) or max(schemas.values(), key=score)
    if 2 * score(schema) < len(values) and name not in (*schemas, '**'):
        yield Finding(NOTE, about, 'seems to be a node of another package: not judged')
        return
    values = read_file(path, schema.row)[node]      # now that it is known what the types are
    rows = list(schema.rows)
    for listing, make_rows in schema.lists.items():
        default = next(row.default for row in rows if row.name == listing)
        rows += [row for name in values.get(listing, default) for row in make_rows(name)]
    for name, remark in schema.unread(values, {row.name for row in rows}).items():
        yield Finding(ERROR, about, f"parameter '{name}' is read by no node",
                      remark or 'remove it, or look it up in docs/parameters.md')
    legal = {}
    for row in rows:
        value, problem = row.check(values.get(row.name, row.default))
        legal[row.name] = row.default if problem else value
        if problem:
            yield Finding(ERROR, about, problem, 'change it in the file')
    if problem := schema.problem(legal):
        yield Finding(ERROR, about, problem, 'change it in the file')
