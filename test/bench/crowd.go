package main

import "context"

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
	pods := get(podsPath)
	return []phase{
		{phaseStart, false, (*session).start},
		{phasePods, false, createPods(32)},
		{phaseLoaded, false, (*session).memory},
		{phaseCrowdJSON, false, withPeak(list(pods, n.Crowd, n.Crowd))},
		{phaseCrowdGzip, false, withPeak(list(pods.gzip(), n.Crowd, n.Crowd))},
		{phaseCrowdProto, false, withPeak(list(pods.as(mediaProtobuf), n.Crowd, n.Crowd))},
		{phaseCrowdTable, false, withPeak(list(pods.as(mediaTable), n.Crowd, n.Crowd))},
		{phaseCrowdStream, false, withPeak(streamPods(mediaJSON, n.Crowd, n.Crowd))},
		{phaseCrowdStreamProto, false, withPeak(streamPods(mediaProtobufWatch, n.Crowd, n.Crowd))},
		{phaseAfterLists, false, (*session).memory},
	}
}

// withPeak adds to what the operation measures how much memory the server held meanwhile at the most.
func withPeak(op operation) operation {
	return func(s *session, ctx context.Context) (result, error) {
		if err := resetPeak(s.server.PIDs); err != nil {
			return result{}, err
		}
		r, err := op(s, ctx)
		if err != nil {
			return r, err
		}
		m, err := readMemory(s.server.PIDs)
		r.Peak = mebibytes(m.Peak)
		return r, err
	}
}
