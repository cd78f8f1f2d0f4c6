package main

import (
	"context"
	"sync/atomic"
)

// The phases of `bench crowd`, whose clients list all pods at once, each once.
const (
	phaseCrowdJSON        = "all list pods, JSON"
	phaseCrowdGzip        = "all list pods, JSON, gzip"
	phaseCrowdProto       = "all list pods, protobuf"
	phaseCrowdTable       = "all list pods, Table"
	phaseCrowdStream      = "all list pods by streaming lists, JSON"
	phaseCrowdStreamProto = "all list pods by streaming lists, protobuf"
)

func crowdPhases(n sizes) []phase {
	pods, stream := get(podsPath), get(streamPath(podsPath))
	return []phase{
		{phaseStart, false, (*session).start},
		{phasePods, false, createPods(32)},
		{phaseLoaded, false, (*session).memory},
		{phaseCrowdJSON, false, crowd(pods, (*client).discard)},
		{phaseCrowdGzip, false, crowd(pods.gzip(), (*client).discard)},
		{phaseCrowdProto, false, crowd(pods.as(mediaProtobuf), (*client).discard)},
		{phaseCrowdTable, false, crowd(pods.as(mediaTable), (*client).discard)},
		{phaseCrowdStream, false, crowd(stream, (*client).discardStream)},
		{phaseCrowdStreamProto, false, crowd(stream.as(mediaProtobufWatch), (*client).discardStream)},
		{phaseAfterLists, false, (*session).memory},
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
