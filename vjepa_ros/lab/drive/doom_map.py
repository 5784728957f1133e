# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run a map of Freedoom in ViZDoom, with a low camera that can be put anywhere.

A patch makes monsters harmless: they wander at 1.1 m/s, neither shoot nor bite, and stand while
the camera is within 1.25 m. Things to pick up are left out. 32 units of a map count as 1 m, and
Doom draws heights 1.2 times as large as widths, so that a person is 2.1 m tall.
"""

from __future__ import annotations

import math
import os
import struct
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

NEEDS = 'the world of Doom needs ViZDoom: pip install vizdoom'
UNIT_M = 1 / 32
CAMERA_M = 10 * 1.2 * UNIT_M         # above the floor, see `_patch`
_START_TICS = 12                     # the game ignores commands at first
_EDGE, _LOW = 2.0, 32.0              # of a floor, of an opening [units]
_STOP = 40                           # distance from the camera [units]
_BODIES = ('ZombieMan POSS', 'ShotgunGuy SPOS', 'ChaingunGuy CPOS', 'DoomImp TROO')
_MONSTERS = ('Arachnotron Archvile BaronOfHell Cacodemon ChaingunGuy Cyberdemon Demon DoomImp '
             'Fatso HellKnight LostSoul PainElemental Revenant ShotgunGuy Spectre '
             'SpiderMastermind WolfensteinSS ZombieMan')
_ITEMS = ('Allmap ArmorBonus Backpack Berserk BFG9000 BlueArmor BlueCard BlueSkull BlurSphere '
          'Cell CellPack Chaingun Chainsaw Clip ClipBox GreenArmor HealthBonus Infrared '
          'InvulnerabilitySphere Medikit Megasphere PlasmaRifle RadSuit RedCard RedSkull '
          'RocketAmmo RocketBox RocketLauncher Shell ShellBox Shotgun Soulsphere Stimpack '
          'SuperShotgun YellowCard YellowSkull')
# Whoever is near the camera stands; the others wander.
_CALM = """actor Calm{name} : {body} replaces {name} {{ Speed 4 -SHOOTABLE -CANUSEWALLS
States {{
Spawn:
See:
{sprite} A 4 A_CheckRange({stop}, "WalkA")
Loop
{steps}
}} }}"""
_STEP = 'Walk{0}:\n{2} {0} 4 A_Wander\n{2} {0} 0 A_CheckRange({3}, "Walk{1}")\nGoto See'
_GONE = 'actor No{0} replaces {0} {{ States {{\nSpawn:\nTNT1 A 1\nStop\n}} }}'
_ROBOT = ('actor Robot : DoomPlayer { Player.ViewHeight 10 Radius 10 Height 32 '
          '+NOTARGET +INVULNERABLE }')         # some floors hurt


def _script() -> bytes:
    """Return script 1 in the byte code of ACS: put the robot to x, y, z, angle.

    The command `warp` would do, but knows whole units only, 3 cm. Then the robot is put down.
    """
    zero, put = (3, 0), (3, 0, 283, 54)      # pushnumber 0; setactorposition, drop
    x, y, z, angle = ((28, number) for number in range(4))       # pushscriptvar
    code = (*zero, *x, *y, *z, *put, *zero, *x, *y, *zero, 259, *put,    # getactorfloorz
            *zero, *angle, 276, 1)                               # setactorangle, terminate
    body = struct.pack(f'<{len(code)}i', *code)
    return b'ACS\0' + struct.pack('<i', 8 + len(body)) + body + struct.pack('<5i', 1, 1, 8, 4, 0)


def _patch() -> bytes:
    """Return a WAD file that makes the player a low camera, and monsters harmless."""
    actors = [_ROBOT, *map(_GONE.format, _ITEMS.split())]
    for number, name in enumerate(_MONSTERS.split()):
        body, sprite = _BODIES[number % len(_BODIES)].split()
        steps = (_STEP.format(*pair, sprite, _STOP) for pair in ('AB', 'BC', 'CD', 'DA'))
        actors.append(_CALM.format(name=name, body=body, sprite=sprite, stop=_STOP,
                                   steps='\n'.join(steps)))
    lumps = {'DECORATE': '\n'.join(actors).encode(), 'LOADACS': b'PUT', 'A_START': b'',
             'PUT': _script(), 'A_END': b'',
             'MAPINFO': b'gameinfo { playerclasses = "Robot" }\n'}
    data, table = b'', b''
    for name, content in lumps.items():
        table += struct.pack('<ii8s', 12 + len(data), len(content), name.encode())
        data += content
    return struct.pack('<4sii', b'PWAD', len(lumps), 12 + len(data)) + data + table


class Map:
    """A map of Doom in a process of its own, seen from a robot.

    Parameters
    ----------
    name, seed
        Name of the map, and what decides how monsters move.

    Attributes
    ----------
    name, state
        Of the map, and what ViZDoom tells of the present moment.
    walls
        (L, 4) x and y of both ends of what blocks the way [units].
    """

    def __init__(self, name: str, seed: int) -> None:
        vizdoom, self.name = import_module('vizdoom'), name
        self._game = game = vizdoom.DoomGame()
        # The game writes into the folder in which it is started.
        self._folder = tempfile.TemporaryDirectory(prefix='vjepa_doom_')
        folder = Path(self._folder.name)
        (folder / 'robot.wad').write_bytes(_patch())
        hidden = ('hud', 'weapon', 'crosshair', 'messages', 'decals', 'particles')
        game.set_config({
            'doom_game_path': str(Path(str(vizdoom.__file__)).parent / 'freedoom2.wad'),
            'doom_scenario_path': str(folder / 'robot.wad'), 'doom_map': name, 'seed': seed,
            'screen_resolution': vizdoom.ScreenResolution.RES_400X300,
            'screen_format': vizdoom.ScreenFormat.RGB24, 'window_visible': False,
            'objects_info_enabled': True, 'sectors_info_enabled': True,
            'depth_buffer_enabled': True, 'episode_timeout': 0,
            **{f'render_{what}': False for what in hidden}})
        game.set_doom_config_path(str(folder / 'doom.ini'))
        before = Path.cwd()
        os.chdir(folder)
        try:
            game.init()
        finally:
            os.chdir(before)
        game.make_action([], _START_TICS)
        game.send_game_command('noclip')     # or the robot would be put onto whom it comes near
        game.make_action([], 1)
        self.state: Any = game.get_state()
        self.walls, self._tops = _walls(self.state.sectors)

    def close(self) -> None:
        """End the process."""
        self._game.close()
        self._folder.cleanup()

    def things(self, level: float) -> tuple[np.ndarray, list[str]]:
        """(N, 2) x and y of all that stands on the floor at a height [units], and their names."""
        there = [o for o in self.state.objects
                 if abs(o.position_z - level) < 0.5 * _LOW and o.name != 'Robot'
                 and not o.name.startswith(('No', 'Teleport', 'MapSpot'))]
        return (np.array([(o.position_x, o.position_y) for o in there]).reshape(-1, 2),
                [o.name for o in there])

    def drops(self, level: float) -> np.ndarray:
        """(L,) bool, walls that are edges from which the floor at a height falls [units]."""
        return self._tops < level + 2 * _EDGE

    def go(self, place: np.ndarray, level: float, angle: float, tics: int) -> None:
        """Put the robot to x, y [units], angle [rad] from x to y, and let time pass."""
        fixed = (np.array((*place, level + _EDGE)) * 2 ** 16).round().astype(int)
        turn = round(angle / math.tau * 2 ** 16) % 2 ** 16
        self._game.send_game_command('puke 1 {} {} {} {}'.format(*fixed, turn))
        self._game.make_action([], tics)
        self.state = self._game.get_state()


def _walls(sectors: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return (L, 4) what blocks the way, and (L,) the higher floor beside it, inf where shut."""
    lines: dict[tuple, list[Any]] = {}
    for sector in sectors:
        for line in sector.lines:
            ends = tuple(sorted(((line.x1, line.y1), (line.x2, line.y2))))
            lines.setdefault(ends, []).append((sector, line))
    walls, tops = [], []
    for ends, sides in lines.items():
        floors = [sector.floor_height for sector, _ in sides]
        gap = min(sector.ceiling_height for sector, _ in sides) - max(floors)
        shut = gap < _LOW or any(line.is_blocking for _, line in sides)
        if shut or max(floors) - min(floors) > _EDGE:
            walls.append([*ends[0], *ends[1]])
            tops.append(math.inf if shut else max(floors))
    return np.array(walls), np.array(tops)
