package main

import (
	_ "github.com/golang-migrate/migrate/v4"
	_ "github.com/gorilla/mux"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/spf13/cobra"
	_ "k8s.io/apiextensions-apiserver/pkg/apiserver"
	_ "k8s.io/apiserver/pkg/storage/testing"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/pkg/controller/garbagecollector"
	_ "k8s.io/kubernetes/pkg/controller/namespace"
	_ "k8s.io/kubernetes/pkg/controller/serviceaccount"
	_ "modernc.org/sqlite"
)

func main() {}
