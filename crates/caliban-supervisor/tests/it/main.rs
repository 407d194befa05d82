//! The fleet through its real programs.
