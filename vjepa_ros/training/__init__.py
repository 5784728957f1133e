# SPDX-License-Identifier: Apache-2.0
"""Learn encoders and heads from rendered scenes and from recordings."""
