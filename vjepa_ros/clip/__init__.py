# SPDX-License-Identifier: Apache-2.0
"""From stamped frames to the input of the model."""
