package main

import (
	"context"
	"sync/atomic"
)

// crowdPhases have clients that list all pods at once, each once.
func crowdPhases(n sizes) []phase {
	pods, stream := get(podsPath), get(streamPath(podsPath))
	shown := []row{peak, cpuMillis, p50, failures}
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{"create Pod, 32 clients", false, createPods(32), nil},
		{phaseWritten, false, (*session).memory, []row{rss}},
		{"all list pods, JSON", false, crowd(pods, (*client).discard), shown},
		{"all list pods, JSON, gzip", false, crowd(pods.gzip(), (*client).discard), shown},
		{"all list pods, protobuf", false, crowd(pods.as(mediaProtobuf), (*client).discard), shown},
		{"all list pods, Table", false, crowd(pods.as(mediaTable), (*client).discard), shown},
		{"all list pods by streaming lists, JSON", false, crowd(stream, (*client).discardStream), shown},
		{"all list pods by streaming lists, protobuf", false, crowd(stream.as(mediaProtobufWatch), (*client).discardStream), shown},
		{"memory afterwards", false, (*session).memory, []row{rss}},
	}
}

// crowd sends the request from all clients at once, and also reports the server's peak memory meanwhile, and how many clients
// got no complete response.
func crowd(r request, read func(*client, context.Context, request) (int64, error)) operation {
	return func(s *session, ctx context.Context) (result, error) {
		if err := resetPeak(s.server.PIDs); err != nil {
			return result{}, err
		}
		var failed, length atomic.Int64
		result, err := s.load(ctx, s.sizes.Crowd, s.sizes.Crowd, func(ctx context.Context, c *client, _ int) error {
			n, err := read(c, ctx, r)
			if err == nil {
				length.Store(n)
				return nil
			}
			if failed.Add(1) == 1 {
				progress("%s: %v", s.server.Name, err)
			}
			return ctx.Err()
		})
		if err != nil {
			return result, err
		}
		m, err := readMemory(s.server.PIDs)
		result.Peak, result.Bytes, result.Failed = mebibytes(m.Peak), length.Load(), figure(failed.Load())
		return result, err
	}
}
