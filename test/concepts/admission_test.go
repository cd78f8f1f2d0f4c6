package concepts

var admissionOfPods, admission []promise
