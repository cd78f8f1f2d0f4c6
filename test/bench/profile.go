package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// profileSeconds is how much of a phase one profile covers. pprof merges several files.
const profileSeconds = 1

// profiled runs a phase and meanwhile stores CPU profiles of the server in the folder, one second in each file:
//
//	go tool pprof -top bin/sqube FOLDER/SERVER/PHASE/*
//
// The last second of a phase is not covered. Servers that offer no profiles, and phases that start or end a server, get
// none.
func (s *session) profiled(ctx context.Context, p phase) (result, error) {
	folder := s.sizes.Profiles
	if folder == "" || s.server.ReadOnly || strings.HasPrefix(p.name, phaseStart) || strings.HasPrefix(p.name, "restart") || strings.HasSuffix(p.name, ": restart") || p.name == phaseScaleTakeover {
		return p.run(s, ctx)
	}
	folder = filepath.Join(folder, s.server.Name, strings.NewReplacer(" ", "-", ",", "").Replace(p.name))
	profiling, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.saveProfiles(profiling, folder) }()
	r, err := p.run(s, ctx)
	stop()
	return r, errors.Join(err, <-ended)
}

// saveProfiles writes one profile after the other until ctx ends.
func (s *session) saveProfiles(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	c, err := s.dialer.dial(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer clients{c}.close()
	for ctx.Err() == nil {
		err := c.do(ctx, get(fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds)))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		name := filepath.Join(folder, time.Now().Format("150405.000")+".pprof")
		if err := os.WriteFile(name, c.answer.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}
