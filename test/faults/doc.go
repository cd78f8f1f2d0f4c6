// Package faults makes things go wrong under a process, without any privilege and
// without its help:
//
//   - a Network that is cut, or drops every packet, between it and what it connects to;
//   - a Disk that is full or nearly so, turns read-only, fails to sync or syncs slowly;
//   - power that is cut: a Recorder of what is written, and a PowerCut at any point of that;
//   - a file system without locks (WithoutLocks) or to be read only (ReadOnly), a mount (Bind);
//   - a wall clock that is wrong from the start (ClockOff) or jumps (StepClock).
//
// All but the network is Linux only, the clock linux/amd64 only; elsewhere they fail
// the test and say so. They take an *exec.Cmd before it is started: the test's own
// binary, as /proc/self/exe, sets up the fault and then becomes the child's program,
// with the same process id. The kernel lets a process have only one of Disk,
// Recorder, WithoutLocks and ClockOff.
package faults
