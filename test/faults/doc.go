// Package faults injects faults under a process, without privileges and without
// its cooperation:
//
//   - a Proxy that cuts the network, or drops every packet, between it and what it connects to;
//   - a Disk that is full or nearly so, turns read-only, fails to sync or syncs slowly;
//   - power cuts: a Recorder of what is written, and a PowerCut at any point of that;
//   - a file system without locks (WithoutLocks) or mounted read-only (ReadOnly), a mount (Bind);
//   - a wall clock that is wrong from the start (ClockOff) or jumps (StepClock).
//
// All but the network is Linux only, the clock linux/amd64 only; elsewhere they fail the test with a message. They take an
// *exec.Cmd before it is started: the test's own binary, as /proc/self/exe, sets up the fault and then becomes the child's
// program, with the same process id. The kernel allows a process only one of Disk, Recorder, WithoutLocks and ClockOff.
package faults
