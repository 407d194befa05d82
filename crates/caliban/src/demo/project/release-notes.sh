#!/bin/sh
# Adds a line to NEWS.
echo "- $1" >> NEWS
echo "NEWS has $(wc -l < NEWS) lines now"
