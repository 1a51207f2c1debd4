"""Tests of call-outs, against services on real sockets."""
