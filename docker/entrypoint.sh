#!/bin/bash
# Source ROS 2 and the workspace, then run the command of the container.
set -e
source "/opt/ros/${ROS_DISTRO}/setup.bash"
source /ws/install/setup.bash
exec "$@"
