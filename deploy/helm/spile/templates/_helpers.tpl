{{- define "spile.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spile.labels" -}}
{{ include "spile.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Name and port of each listener that callers reach. */}}
{{- define "spile.ports" -}}
{{- $ports := dict "http" 8080 "grpc" 8083 "resp" 6380 "gateway" 8000 }}
{{- range $name, $port := $ports }}
{{- if index $.Values.listen $name }}
{{ $name }}: {{ $port }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Among how many instances a limit is divided while Redis is away. What autoscaling may reach, so that all of them together never
admit more than the limit. */}}
{{- define "spile.instances" -}}
{{- if .Values.autoscaling.enabled }}{{ .Values.autoscaling.maxReplicas }}{{ else }}{{ .Values.replicas }}{{ end }}
{{- end }}
