package changes

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sqube/sqube/sqlstore"
)

// addRoom says which values were given up for room, and warns of that. A list of one namespace tells of that namespace alone, and of its life as
// far as the user may see it.
func (k *Kept) addRoom(ctx context.Context, r *rights, h sqlstore.HistoryStats) error {
	namespace := request.NamespaceValue(ctx)
	var last int64
	var whose []string
	for _, g := range h.GaveWay {
		if namespace != "" && g.Namespace != namespace {
			continue
		}
		if namespace != "" {
			if lived, err := r.inLife(ctx, object{GroupResource: namespaces, name: namespace}, g.Until); err != nil {
				return err
			} else if !lived {
				continue
			}
		}
		k.GaveWay = append(k.GaveWay, GaveWay{g.Namespace, g.User, fmt.Sprint(g.Until)})
		if last = max(last, g.Until); len(whose) < maxWhose {
			whose = append(whose, g.String())
		}
	}
	if last == 0 {
		return nil
	}
	k.ValuesRevision = fmt.Sprint(last)
	if last == h.ValuesFrom {
		at := metav1.NewTime(time.UnixMilli(h.ValuesAt).UTC())
		k.ValuesSince = &at
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("history gave up values up to revision %d for room (--history-bytes): most were written by %s", last, strings.Join(whose, ", ")))
	return nil
}

// maxWhose is how many of those who gave way a warning names.
const maxWhose = 3
