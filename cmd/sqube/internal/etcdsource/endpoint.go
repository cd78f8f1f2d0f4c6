package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
)

// endpoint is a running etcd.
type endpoint struct {
	connection *grpc.ClientConn
	keys       etcdserverpb.KVClient
	leases     etcdserverpb.LeaseClient
	revision   int64
	ttls       map[int64]time.Duration // by lease: kube-apiserver uses one for many keys
}

const (
	answerTimeout = 10 * time.Second // of the first request, and of a ping while a later one gets no data
	pageKeys      = 200
)

// OpenEndpoint connects to etcd at a URL, such as https://10.0.0.1:2379, and reads its current state. etcd must keep that state until
// everything has been read; kube-apiserver compacts it after 5 to 10 minutes.
func OpenEndpoint(ctx context.Context, address *url.URL, files rest.TLSClientConfig) (_ Source, err error) {
	secure := insecure.NewCredentials()
	if address.Scheme == "https" {
		config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: files})
		if err != nil {
			return nil, fmt.Errorf("--cacert, --cert, --key: %w", err)
		}
		secure = credentials.NewTLS(config)
	}
	connection, err := grpc.NewClient(address.Host, grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: answerTimeout, Timeout: answerTimeout}))
	if err != nil {
		return nil, err
	}
	e := &endpoint{connection, etcdserverpb.NewKVClient(connection), etcdserverpb.NewLeaseClient(connection), 0, map[int64]time.Duration{}}
	first, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	response, err := e.keys.Range(first, &etcdserverpb.RangeRequest{Key: []byte("/"), CountOnly: true})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", address.Host, err), e.Close())
	}
	e.revision = response.Header.Revision
	return e, nil
}

func (e *endpoint) Revision() int64 { return e.revision }

func (e *endpoint) Walk(ctx context.Context, prefix string, yield func(*Entry) error) error {
	// All keys are text, so this end is after all keys with the prefix.
	request := &etcdserverpb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(prefix + "\xff"), Revision: e.revision, Limit: pageKeys}
	for {
		page, err := e.keys.Range(ctx, request)
		if status.Code(err) == codes.OutOfRange {
			return errors.New("etcd was compacted meanwhile: import a snapshot of it (etcdctl snapshot save)")
		}
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			ttl, err := e.timeToLive(ctx, kv.Lease)
			if err != nil {
				return err
			}
			if err := yield(&Entry{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision, TTL: ttl}); err != nil {
				return err
			}
			request.Key = append(kv.Key, 0)
		}
		if !page.More {
			return nil
		}
	}
}

// timeToLive gets the remaining time of a lease, one millisecond if it has expired since the state was read.
func (e *endpoint) timeToLive(ctx context.Context, lease int64) (time.Duration, error) {
	ttl, known := e.ttls[lease]
	if lease == 0 || known {
		return ttl, nil
	}
	response, err := e.leases.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: lease})
	if err != nil {
		return 0, fmt.Errorf("lease %x: %w", lease, err)
	}
	ttl = max(time.Duration(response.TTL)*time.Second, time.Millisecond)
	e.ttls[lease] = ttl
	return ttl, nil
}

func (e *endpoint) Close() error { return e.connection.Close() }
