package main

import (
	"context"
	"fmt"
	"time"
)

// browse lists pods until the context ends, as people and programs do in addition to nodes and controllers: in each interval those of
// one namespace as kubectl does, and in every sixth all, in one answer.
func (c *cluster) browse(ctx context.Context, client *client, interval time.Duration) {
	defer clients{client}.close()
	for n := 0; wait(ctx, interval) == nil; n++ {
		r := get(fmt.Sprintf("/api/v1/namespaces/%s/pods?limit=500", deploymentOf(n%5*perNamespace).namespace)).as(mediaTable)
		if n%6 == 5 {
			r = get("/api/v1/pods").as(mediaProtobuf)
		}
		if _, err := client.discard(ctx, r); err != nil && ctx.Err() == nil {
			progress("listing pods: %v", err)
		}
	}
}
